#!/usr/bin/env bash
# The demo: draw charts, index them, profile this machine, compare policies, train on 4 ranks, evaluate.
# Arguments are passed to `entrain train`, such as --set steps=50. An earlier run of the demo is set aside.
set -euo pipefail
cd "$(dirname "$0")/../.."
entrain=${ENTRAIN:-build/release/entrain/cli/entrain}
data=data/demo
run=runs/demo
mkdir -p "$data" runs

say() { printf '\n\033[1m%s\033[0m\n' "$1"; }

if [[ ! -f $data/.complete ]]; then
  say "1. Drawing charts as PNG images into tar shards"
  .venv/bin/python tools/demo/make_charts.py --output $data --train 9600 --validation 600 --seed 1
  touch $data/.complete
fi

say "2. Indexing: sizes and exact lengths of every sample"
$entrain index $data/train-*.tar -o $data/train.csv --model configs/demo-model.toml
$entrain index $data/val-*.tar -o $data/val.csv --model configs/demo-model.toml

say "3. Measuring layer costs on this machine"
$entrain profile --quick --model configs/demo-model.toml -o $data/profile.json

say "4. Planning 4 lanes, and comparing policies for this very data and model"
common=(--index $data/train.csv --model configs/demo-model.toml --profile $data/profile.json --global-batch 32)
$entrain plan --lanes 4 "${common[@]}" -o $data/plan.json
$entrain simulate "${common[@]}" --plan $data/plan.json --policy sequential,random,lpt-2d,entrain \
  --schedule 1f1b,zb-h1

say "5. Training on 4 in-process ranks"
$entrain train configs/demo.toml --overwrite "$@"

say "6. Answers to questions about unseen charts"
$entrain eval $run --answers $run/answers.jsonl
echo "The same with every image blanked:"
$entrain eval $run --blank-images

echo
$entrain report $run -o $run/report.html --force
echo "Where the time of a step went: $run/report.html"
echo "Timelines: $run/trace_predicted.json and $run/trace_measured.json (open in Perfetto)."
echo "Metrics: $run/metrics.jsonl; weights: $run/weights.safetensors; answers: $run/answers.jsonl."
