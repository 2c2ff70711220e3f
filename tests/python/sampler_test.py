"""BalancedBatchSampler: nothing lost or twice, limits, resuming at other ranks, messages that help."""

import collections
import json
import math
import os
import pickle
import random
import tempfile
import unittest
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from entrain._run import run

from entrain import BalancedBatchSampler, Costs, Index, balance_trainer, costs

MODEL = Path(__file__).resolve().parents[2] / "configs/models/qwen2.5-vl-llama-1b.toml"


def costs_of(count, seed=0, modules=("vision", "llm")):
    """Skewed; every fifth sample has no image."""
    draw = random.Random(seed)
    tokens = [int(20 / (draw.random() + 0.02)) for _ in range(count)]
    seconds = {}
    for name in modules:
        seconds[name] = [n * 1e-4 * draw.random() for n in tokens]
    for i in range(0, count, 5):
        seconds[modules[0]][i] = 0.0
    return Costs(
        seconds,
        tokens=tokens,
        bytes=[7 * n for n in tokens],
        target_tokens=[n // 2 for n in tokens],
        ids=[f"s{i}" for i in range(count)],
    )


COSTS = costs_of(196)


def sampler_of(costs=COSTS, **options):
    given = {"global_batch": 32, "microbatch": 2, "rank": 0, "world_size": 2, "search_steps": 300}
    return BalancedBatchSampler(costs, **{**given, **options})


def all_ranks(world_size, **options):
    return [sampler_of(rank=rank, world_size=world_size, **options) for rank in range(world_size)]


def steps_of(samplers):
    """[step] the samples of all ranks in it."""
    microbatches = [list(sampler) for sampler in samplers]
    assert len({len(rank) for rank in microbatches}) == 1, "ranks differ in their number"
    per_step = samplers[0].microbatches
    return [
        [s for rank in microbatches for batch in rank[begin : begin + per_step] for s in batch]
        for begin in range(0, len(microbatches[0]), per_step)
    ]


class EverySample(unittest.TestCase):
    def test_comes_once_an_epoch_in_the_step_that_the_order_says(self):
        for layout in ("fsdp", "ddp", "pp"):
            for world_size in (1, 2, 4, 8):
                samplers = all_ranks(world_size, layout=layout)
                for epoch in range(3):
                    order = samplers[0]._permute(epoch)
                    for sampler in samplers:
                        sampler.set_epoch(epoch)
                    steps = steps_of(samplers)
                    self.assertEqual(len(steps), 6)  # 196 samples: the last four fill no step
                    for step, samples in enumerate(steps):
                        self.assertEqual(
                            sorted(samples), sorted(order[32 * step : 32 * step + 32]), layout
                        )

    def test_comes_once_when_resumed_at_another_number_of_ranks(self):
        for layout in ("fsdp", "ddp", "pp"):
            for stop in (0, 1, 3, 6):
                trained = []
                samplers = all_ranks(2, layout=layout)
                for world_size in (4, 8, 1, 2):  # every epoch is begun by some and ended by others
                    iterators = [iter(sampler) for sampler in samplers]
                    for _ in range(stop * samplers[0].microbatches):
                        trained += [s for iterator in iterators for s in next(iterator)]
                    state = samplers[0].state_dict()
                    self.assertEqual((state["step"], state["epoch"]), (stop, samplers[0].epoch))
                    samplers = all_ranks(world_size, layout=layout)
                    for sampler in samplers:
                        sampler.load_state_dict(pickle.loads(pickle.dumps(state)))
                    if stop == samplers[0].steps_per_epoch:
                        for sampler in samplers:
                            sampler.set_epoch(state["epoch"] + 1)
                        continue
                    trained += [s for step in steps_of(samplers) for s in step]
                    for sampler in samplers:
                        sampler.set_epoch(sampler.epoch + 1)
                counts = collections.Counter(trained)
                self.assertEqual(sum(counts.values()), 4 * 192, (layout, stop))
                self.assertLessEqual(max(counts.values()), 4)

    def test_comes_once_and_in_its_window_when_oversized_ones_are_held(self):
        heavy = [60.0 if i % 20 == 3 else 1.0 for i in range(190)]
        options = {"costs": Costs({"llm": heavy}, tokens=[1] * 190), "drop_last": False}
        options |= {"microbatch": 2, "global_batch": 24}
        drawn = steps_of(all_ranks(2, **options))  # eight steps; the last has 22 samples
        held = steps_of(all_ranks(2, hold=3, **options))
        self.assertEqual([len(step) for step in held], [len(step) for step in drawn])
        self.assertNotEqual([sorted(step) for step in held], [sorted(step) for step in drawn])
        for first in range(0, len(drawn), 3):
            self.assertEqual(
                sorted(s for step in held[first : first + 3] for s in step),
                sorted(s for step in drawn[first : first + 3] for s in step),
            )

        def with_heavy(steps):
            return sum(any(heavy[s] > 1 for s in step) for step in steps)

        self.assertLess(with_heavy(held), with_heavy(drawn))
        off = steps_of(all_ranks(2, hold=1, **options))
        self.assertEqual(off, drawn)

    def test_of_an_uneven_end_comes_too_where_asked(self):
        samplers = all_ranks(2, drop_last=False, microbatch=16)  # one microbatch a rank and step
        self.assertEqual(sorted(s for step in steps_of(samplers) for s in step), list(range(196)))

    def test_comes_in_the_order_of_torch_or_of_ones_own(self):
        own = list(reversed(range(196)))
        steps = steps_of(all_ranks(2, order=lambda epoch: own))
        self.assertEqual(sorted(steps[0]), sorted(own[:32]))
        try:
            from torch.utils.data import DistributedSampler
        except ImportError:
            self.skipTest("torch is not installed")
        theirs = [list(DistributedSampler(range(196), 2, rank, seed=3)) for rank in (0, 1)]
        steps = steps_of(all_ranks(2, order="torch", seed=3))
        first = [s for pair in zip(*theirs, strict=True) for s in pair][:32]
        self.assertEqual(sorted(steps[0]), sorted(first))

    def test_comes_in_the_same_microbatch_as_exported(self):
        index = Index.from_rows(
            [
                {
                    "id": f"s{i}",
                    "images": [(56 + 28 * (i % 9), 336)],
                    "response_tokens": 9 + i * 7 % 50,
                }
                for i in range(50)
            ],
            progress=False,
        )
        known = costs(index, MODEL)
        for layout, padded, seed, epoch in (("fsdp", False, 0, 0), ("ddp", True, 3, 2)):
            sampler = sampler_of(
                known, layout=layout, padded=padded, seed=seed, global_batch=16, search_steps=2000
            )
            sampler.set_epoch(epoch)
            with tempfile.TemporaryDirectory() as folder:
                run(
                    "export", index=index.path, model=MODEL, layout=layout, padded=padded, seed=seed,
                    epoch=epoch, ranks=2, microbatches=4, microbatch=2, search_steps=2000,
                    order=f"{folder}/order.jsonl",
                )  # fmt: skip
                text = Path(folder, "order.jsonl").read_text()
            lines = [json.loads(line) for line in text.splitlines()]
            self.assertEqual(len(lines), 3 * 4 * 2)
            for line in lines:
                own = sampler.step(line["step"]).microbatches[line["microbatch"]][line["rank"]]
                self.assertEqual([f"s{sample}" for sample in own], line["samples"])


class Ranks(unittest.TestCase):
    def ranks_of(self, **options):
        sampler = sampler_of(**{"rank": None, "world_size": None, **options})
        return sampler.rank, sampler.world_size

    def test_are_those_of_torchrun_before_a_process_group(self):
        self.assertEqual(self.ranks_of(), (0, 1))
        with mock.patch.dict(os.environ, RANK="1", WORLD_SIZE="2"):
            self.assertEqual(self.ranks_of(), (1, 2))
            self.assertEqual(self.ranks_of(rank=0, world_size=4), (0, 4))
        with mock.patch.dict(os.environ, WORLD_SIZE="2"):
            self.assertEqual(self.ranks_of(), (0, 1))
        for rank, words in (("x", "RANK 'x'"), ("2", "rank 2 of 2")):
            environment = mock.patch.dict(os.environ, RANK=rank, WORLD_SIZE="2")
            with environment, self.assertRaisesRegex(ValueError, words):
                self.ranks_of()


class Steps(unittest.TestCase):
    def test_take_less_time_than_drawn_order_and_say_how_much(self):
        for layout in ("fsdp", "ddp", "pp"):
            sampler = sampler_of(layout=layout, world_size=4, search_steps=20_000)
            step = sampler.step(0)
            measured = sampler.measure(step.microbatches)
            self.assertAlmostEqual(step.seconds, measured.seconds, places=9)
            self.assertAlmostEqual(step.perfect_seconds, measured.perfect_seconds, places=8)
            self.assertEqual(step.num_target_tokens, measured.num_target_tokens)
            drawn = sampler._samples(0, 0, 1)
            dealt = [[[drawn[8 * m + r], drawn[8 * m + r + 4]] for r in range(4)] for m in range(4)]
            self.assertLess(step.seconds, sampler.measure(dealt).seconds)
            work = sum(sum(COSTS.seconds[m][s] for m in COSTS.modules) for s in drawn)
            self.assertAlmostEqual(step.perfect_seconds, work / 4, places=6)
            self.assertGreaterEqual(step.seconds, step.perfect_seconds - 1e-9)
            self.assertEqual(step.num_target_tokens, sum(COSTS.target_tokens[s] for s in drawn))

    def test_are_the_same_on_every_rank_and_ahead_of_time(self):
        one, other = sampler_of(), sampler_of(rank=1)
        self.assertEqual(one.step(0).microbatches, other.step(0).microbatches)
        one.step(1)
        self.assertEqual(one.step(2), sampler_of().step(2))
        self.assertEqual(pickle.loads(pickle.dumps(one)).step(2), one.step(2))

    def test_keep_limits_and_what_every_rank_needs(self):
        sampler = sampler_of(
            world_size=4, every_rank_has=["vision"], max_tokens=2500, max_bytes=17_000
        )
        for step in range(sampler.steps_per_epoch):
            for ranks in sampler.step(step).microbatches:
                for samples in ranks:
                    self.assertTrue(any(COSTS.seconds["vision"][s] > 0 for s in samples))
                    self.assertLessEqual(sum(COSTS.tokens[s] for s in samples), 2500)
                    self.assertLessEqual(sum(COSTS.bytes[s] for s in samples), 17_000)
        sampler.check()

    def test_never_need_more_than_drawn_order_without_limits(self):
        sampler = sampler_of(world_size=4, padded=True)
        for step in range(sampler.steps_per_epoch):
            drawn = sampler._samples(0, step, step + 1)
            cells = [drawn[i::16] for i in range(16)]

            def padded(samples):
                return len(samples) * max(COSTS.tokens[s] for s in samples)

            most = max(map(padded, cells))
            for ranks in sampler.step(step).microbatches:
                for samples in ranks:
                    self.assertLessEqual(padded(samples), most)

    def test_of_a_mean_over_tokens_sum_to_that_of_all(self):
        step = sampler_of(world_size=4).step(0)
        losses = [Fraction(n, 7) for n in COSTS.tokens]  # summed over a sample's target tokens
        parts = [
            sum(losses[s] for s in samples) / step.num_target_tokens
            for ranks in step.microbatches
            for samples in ranks
        ]
        members = [s for ranks in step.microbatches for samples in ranks for s in samples]
        whole = sum(losses[s] for s in members) / sum(COSTS.target_tokens[s] for s in members)
        self.assertEqual(sum(parts), whole)

    def test_are_assigned_beside_the_training(self):
        sampler = BalancedBatchSampler(
            costs_of(4096 * 4), global_batch=4096, microbatch=16, rank=0, world_size=64
        )
        sampler.step(0)
        ahead = sampler._ahead[(0, 1)]
        self.assertIs(sampler.step(1), ahead.result(timeout=60)[0])


class BadInput(unittest.TestCase):
    def expect(self, words, call, kind=ValueError):
        with self.assertRaises(kind) as caught:
            call()
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_of_costs_is_named(self):
        for value in (-1.0, math.nan, math.inf, 1e9):
            self.expect(
                ["seconds of llm", "sample 1", "0 to 1000"],
                lambda value=value: Costs({"llm": [0.1, value]}, tokens=[1, 2]),
            )
        self.expect(["tokens", "sample 0"], lambda: Costs({"llm": [1.0]}, tokens=[-1]))
        self.expect(["3 values for 2"], lambda: Costs({"llm": [1.0] * 3}, tokens=[1, 2]))
        self.expect(
            ["'a' is there twice"],
            lambda: Costs({"llm": [1.0] * 2}, tokens=[1, 2], ids=["a", "a"]),
        )
        self.expect(["no module"], lambda: Costs({}, tokens=[1]))
        self.expect(["no sample"], lambda: Costs({"llm": []}, tokens=[]))

    def test_of_options_is_named(self):
        for options, words in (
            ({"global_batch": 30, "world_size": 4}, ["30 samples is no multiple of 4 ranks"]),
            ({"layout": "tp"}, ["'tp'", "fsdp, ddp, pp"]),
            ({"rank": 2}, ["rank 2 of 2"]),
            ({"rank": 1, "world_size": None}, ["belong together"]),
            ({"hold": -1}, ["hold is -1"]),
            ({"every_rank_has": ["audio"]}, ["'audio'", "vision, llm"]),
            ({"global_batch": 512, "microbatch": 4}, ["196 samples do not fill"]),
            ({"max_tokens": 900}, ["samples have more than 900 tokens alone", "s"]),
            ({"max_bytes": 6000}, ["more than 6000 bytes alone"]),
            ({"dataset": range(195)}, ["195 samples", "196", "index it again"]),
        ):
            self.expect(words, lambda options=options: sampler_of(**options))
        for options, words, kind in (
            ({"order": "random"}, ["order is 'random'", "'torch'"], ValueError),
            ({"order": [1, 2]}, ["order is [1, 2]"], TypeError),
            ({"global_batch": 32.0}, ["global_batch is 32.0", "whole"], TypeError),
            ({"microbatch": "2"}, ["microbatch is '2'"], TypeError),
            ({"max_bytes": "2GiB"}, ["max_bytes is '2GiB'"], TypeError),
            ({"max_tokens": -1}, ["max_tokens is -1"], ValueError),
            ({"seed": -1}, ["seed is -1"], ValueError),
        ):
            self.expect(words, lambda options=options: sampler_of(**options), kind)
        for step in (-1, 6, 99):
            self.expect([f"step {step}", "0 to 5"], lambda step=step: sampler_of().step(step))
        self.expect(["step 7", "0 to 6"], lambda: sampler_of().state_dict(step=7))
        self.expect(["epoch is 'x'"], lambda: sampler_of().set_epoch("x"), TypeError)
        self.expect(
            ["samples have work in vision"],
            sampler_of(microbatch=1, every_rank_has="vision").check,
        )
        self.assertEqual(sampler_of(every_rank_has="vision").everywhere, [0])
        repeated = sampler_of(order=lambda epoch: [0] * 196)
        self.expect(["no permutation", "1 of them"], lambda: next(iter(repeated)))
        self.expect(["list given"], lambda: sampler_of([1, 2]), TypeError)
        index = Index.from_rows([{"response_tokens": 3}], progress=False)
        self.expect(["model="], lambda: sampler_of(index), TypeError)

    def test_of_a_trainer_is_named(self):
        arguments = SimpleNamespace(
            world_size=1, train_batch_size=4, gradient_accumulation_steps=1, process_index=0,
            data_seed=None, seed=0,
        )  # fmt: skip
        trainer = SimpleNamespace(train_dataset=range(8), model=None, args=arguments)
        self.expect(["8 samples", "costs are of 1"], lambda: balance_trainer(trainer, costs_of(1)))
        for name in ("profile", "measured", "freeze"):
            self.expect(
                [f"no {name}=", f"entrain.costs(index, trainer.model, {name}=…)"],
                lambda name=name: balance_trainer(trainer, costs_of(8), **{name: "x"}),
                TypeError,
            )

    def test_of_a_step_that_cannot_keep_limits_is_named(self):
        most = max(COSTS.tokens)
        sampler = sampler_of(microbatch=16, max_tokens=most)
        self.expect(["epoch 0, step", "find no place"], sampler.check, RuntimeError)

    def test_of_a_state_is_named(self):
        state = sampler_of().state_dict()
        self.assertLess(len(pickle.dumps(state)), 300)
        for other, words in (
            (sampler_of(costs_of(196, seed=1)), ["digest", "other samples"]),
            (sampler_of(costs_of(195)), ["num_samples 196"]),
            (sampler_of(seed=1), ["seed 0"]),
            (sampler_of(global_batch=64), ["global_batch 32"]),
            (sampler_of(hold=3), ["hold 1"]),
        ):
            self.expect(words, lambda other=other: other.load_state_dict(state))
        for change, words in (
            ({"format": "other"}, ["format 'other'"]),
            ({"version": 2}, ["version 2"]),
            ({"step": 7}, ["step 7", "0 to 6"]),
            ({"step": "1"}, ["step '1'"]),
            ({"epoch": -1}, ["epoch -1"]),
        ):
            self.expect(words, lambda change=change: sampler_of().load_state_dict(state | change))
        window = sampler_of(hold=4)
        iterator = iter(window)
        for _ in range(window.microbatches):
            next(iterator)
        state = window.state_dict()
        self.assertEqual(state["step"], 1)  # within a window; windows are the same at any ranks
        later = sampler_of(hold=4, world_size=4)
        later.load_state_dict(state)
        self.assertEqual(
            sorted(s for ranks in window.step(1).microbatches for part in ranks for s in part),
            sorted(s for ranks in later.step(1).microbatches for part in ranks for s in part),
        )

    def test_of_a_state_of_another_order_is_named(self):
        def backwards(epoch):
            return [195 - i for i in range(196)] if epoch else list(range(196))

        def own(**options):
            sampler = sampler_of(**options)
            sampler.set_epoch(1)
            return sampler

        orders = (None, "torch", backwards, lambda epoch: list(range(196)))
        for one in orders:
            state = own(order=one).state_dict(step=3)
            for other in orders:
                loaded = sampler_of(order=other)
                if one is other:
                    loaded.load_state_dict(state)
                    self.assertEqual(loaded.state_dict(), state)
                else:
                    self.expect(["order"], lambda s=loaded, state=state: s.load_state_dict(state))
        same = sampler_of(order=lambda epoch: backwards(epoch))
        same.load_state_dict(own(order=backwards).state_dict(step=3))
        without = sampler_of().state_dict()
        del without["order"]
        self.expect(["order None"], lambda: sampler_of().load_state_dict(without))


if __name__ == "__main__":
    unittest.main()
