"""Reads the token caches of `entrain index`, as entrain/core/dataset/token_cache.h describes them."""

import csv
import json
import struct
from pathlib import Path


def read_tokens(index):
    """(facts, [(sample id, ids, targets, slots)] in the index's order) of an index's token cache.

    The names' hashes are not computed: samples are matched by their numbers of tokens with and without
    loss, so that the order of values has to be the index's, as the writer keeps it.
    """
    index = Path(index)
    content = index.with_suffix(".tokens").read_bytes()
    assert content[:8] == b"etokens1"
    facts_bytes, samples, values, _, _ = struct.unpack_from("<5Q", content, 8)
    facts = json.loads(content[48 : 48 + facts_bytes])
    directory = 48 + facts_bytes
    begins = sorted(
        struct.unpack_from("<2Q", content, directory + 16 * i)[1] for i in range(samples)
    )
    numbers = struct.unpack_from(f"<{values}I", content, directory + 16 * samples)
    with index.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == samples
    result = []
    for row, begin in zip(rows, begins, strict=True):
        num_ids, num_ranges, num_slots = numbers[begin : begin + 3]
        at = begin + 3
        ids = list(numbers[at : at + num_ids])
        at += num_ids
        pairs = numbers[at : at + 2 * (num_ranges + num_slots)]
        pairs = list(zip(pairs[::2], pairs[1::2], strict=True))
        targets, slots = pairs[:num_ranges], pairs[num_ranges:]
        with_loss = sum(end - start for start, end in targets)
        assert int(row["response_tokens"]) == with_loss
        assert int(row["prompt_tokens"]) == num_ids - with_loss
        result.append((row["sample_id"], ids, targets, slots))
    return facts, result
