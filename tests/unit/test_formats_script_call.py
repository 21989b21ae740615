"""Launch scripts that take what they need as positional parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import windtunnel as wt
from windtunnel.base.errors import FileError, SpecError, UnknownName
from windtunnel.cli import app
from windtunnel.formats import import_job
from windtunnel.formats.jobs.imported import Stated
from windtunnel.formats.jobs.scripts.command import launch, words
from windtunnel.formats.jobs.scripts.script_call import call_of, file_of
from windtunnel.formats.jobs.servers.launch import read_launch
from windtunnel.spec import load_job
from windtunnel.workload import parameter_count

SCRIPT = """#!/bin/bash
ENV=$1
MODEL_SIZE=$2
MBS=${3}
TP=${10}
SP=${11}
LR=$4
if [ $ENV = here ]; then
NODES=1
elif [ $ENV = there ]; then
NODES=$WORLD_SIZE
fi
if [ $MODEL_SIZE = 1B ]; then
LAYERS=16
HIDDEN=2048
elif [ $MODEL_SIZE = 7B ]; then
LAYERS=32
HIDDEN=4096
fi
AC=$5
case $5 in
  full) RECOMPUTE="--recompute-granularity full --recompute-method uniform" ;;
  none) RECOMPUTE="" ;;
esac
if [ $SP = true ] && [ $TP -gt 1 ]; then
SEQUENCE=" --sequence-parallel"
fi
if [ $6 != none ]; then
LOAD=" --load $6"
fi
run="torchrun --nnodes $NODES train.py --num-layers ${LAYERS} --hidden-size ${HIDDEN} --num-attention-heads 32 \\
    ${RECOMPUTE} \\
    ${SEQUENCE} ${LOAD} --seq-length 2048 --micro-batch-size ${MBS} --global-batch-size ${GBS:-64} \\
    --tensor-model-parallel-size ${TP} --vocab-size 32000 --lr ${LR} --train-iters $7 --swiglu --disable-bias-linear"
eval $run
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT)
    return path


def test_words_behind_the_script_are_its_parameters(script: Path) -> None:
    imported = import_job(Path(f"{script} here 7B 2 1e-4 full none 100 x y 4 true"))
    plan = imported.plan
    assert imported.model.layers == 32 and plan is not None
    assert (plan.tp, plan.micro_batch, plan.sequence_parallel, plan.recompute) == (4, 2, True, "full")
    assert parameter_count(imported.model) == pytest.approx(6.6e9, rel=0.05)


def test_names_in_front_stand_for_parameters_and_for_the_environment(script: Path) -> None:
    imported = import_job(Path(f"SP=true TP=2 GBS=128 bash {script}  here 1B 1 1e-4 none"))
    assert imported.plan is not None
    assert (imported.model.layers, imported.plan.tp, imported.plan.global_batch) == (16, 2, 128)


def test_a_parameter_without_a_name_needs_words(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("torchrun a.py --num-layers $1 --hidden-size 64 --num-attention-heads 4 --vocab-size 99\n")
    with pytest.raises(SpecError, match=r'\$1: the value of --num-layers\. .* "run.sh \$1 \$2 …"\.$'):
        import_job(path)


def test_words_beat_names(script: Path) -> None:
    assert import_job(Path(f"MODEL_SIZE=1B MBS=1 TP=2 {script} here 7B 1 1e-4 none none 1")).model.layers == 32


def test_what_is_missing_is_named_with_its_values(script: Path) -> None:
    with pytest.raises(SpecError) as refused:
        import_job(script)
    said = str(refused.value)
    assert "MODEL_SIZE ($2): 1B, 7B;" in said
    assert "MBS ($3): the value of --micro-batch-size;" in said
    assert "AC ($5): full, none;" in said
    assert "TP (${10})" in said and "SP (${11}): true" in said
    assert "ENV" not in said and "LR" not in said and "$6" not in said  # no second of a step depends on these
    assert 'by name: "MODEL_SIZE=1B MBS=N AC=full TP=N SP=true run.sh"' in said


def test_what_the_user_sets_is_not_asked_for(script: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["import", f"MODEL_SIZE=7B {script} here 7B 1 1 none", "--on", "h100-ib", "--set", "plan.tp=2", "--set", "cluster.gpus=8"],
    )
    assert result.exit_code == 0, result.output
    assert "tp = 2" in result.output


def test_import_takes_the_words_without_quotes_too(script: Path) -> None:
    result = CliRunner().invoke(
        app, ["import", str(script), "here", "7B", "2", "1e-4", "full", "none", "100", "x", "y", "4", "true"]
    )
    assert result.exit_code == 0, result.output
    assert "tp = 4" in result.output and "micro_batch = 2" in result.output


def test_long_words_and_two_calls_compared(script: Path) -> None:
    words_of = ["here", "7B", "2", "1e-4", "full", "none", "100", "x" * 400, "y", "4", "true"]
    assert CliRunner().invoke(app, ["import", str(script), *words_of]).exit_code == 0
    call = " ".join([f"NAME={'z' * 400}", str(script), *words_of])
    assert CliRunner().invoke(app, ["compare", call, call, "--on", "h100-ib", "--set", "cluster.gpus=8"]).exit_code == 0
    assert CliRunner().invoke(app, ["predict", call, "--on", "h100-ib", "--set", "cluster.gpus=8"]).exit_code == 0


def test_a_value_that_no_branch_has(script: Path) -> None:
    with pytest.raises(UnknownName, match=r"MODEL_SIZE \(\$2\): got '8B'; allowed: 1B, 7B. Did you mean"):
        import_job(Path(f"{script} here 8B 1 1 none none 1 x y 1"))


def test_a_lone_condition_may_be_passed_over(script: Path) -> None:
    imported = import_job(Path(f"MODEL_SIZE=7B MBS=1 TP=2 {script} here 7B 1 1 none"))
    assert imported.plan is not None and not imported.plan.sequence_parallel
    assert any("nothing for SP (${11})" in line for line in imported.assumed)


def test_names_that_the_script_sets_itself_are_told(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("TP=4\ntorchrun a.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 99\n")
    assert any("the script's own TP" in line for line in import_job(Path(f"TP=2 {path}")).assumed)


def test_a_name_that_the_script_does_not_read_is_told(script: Path) -> None:
    imported = import_job(Path(f"MODELSIZE=1B GBS=128 MBS=1 {script} here 7B 1 1 none none 1 x y 1 true"))
    assert "nothing of MODELSIZE: the script does not read it (is it MODEL_SIZE?)" in imported.assumed
    assert not any("GBS" in line for line in imported.assumed)
    assert imported.plan is not None and imported.plan.global_batch == 128


def test_a_variable_of_the_environment_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "case $SIZE in\n small) L=2 ;;\n large) L=4 ;;\nesac\n"
        "torchrun a.py --num-layers $L --hidden-size 64 --num-attention-heads 4 --vocab-size 99\n"
    )
    with pytest.raises(SpecError, match="SIZE: small, large"):
        import_job(path)
    assert import_job(Path(f"SIZE=large {path}")).model.layers == 4


def test_options_in_a_loop() -> None:
    text = (
        "while [[ $# -gt 0 ]]; do\n case $1 in\n"
        "  --size) SIZE=$2; shift 2 ;;\n  --tp) TP=$2; shift ;;\n  *) shift ;;\n esac\ndone\n"
        'torchrun a.py --a $SIZE --b $TP "$@"\n'
    )
    assert launch(text, "x", ("--size", "7B", "--tp", "4", "y"))[0][1:] == ["a.py", "--a", "7B", "--b", "4"]
    assert words(text, "x")[1:] == ["a.py", "--a", "$SIZE", "--b", "$TP"]


def test_getopts_and_loops_over_parameters() -> None:
    text = 'while getopts "m:t:v" o; do\n case $o in\n m) M=$OPTARG ;;\n t) T=$OPTARG ;;\n v) V=1 ;;\n esac\ndone\n'
    text += "torchrun a.py --a $M --b $T --c $V\n"
    assert launch(text, "x", ("-m", "7B", "-vt4", "rest"))[0][2:] == ["--a", "7B", "--b", "4", "--c", "1"]
    text = 'for arg in "$@"; do\n case $arg in\n --tp=*) TP="${arg#*=}" ;;\n --pp=*) PP=${arg##*=} ;;\n esac\ndone\n'
    assert launch(text + "torchrun a.py --a $TP --b $PP", "x", ("--tp=2", "--pp=8"))[0][2:] == ["--a", "2", "--b", "8"]


@pytest.mark.parametrize(
    ("expansion", "value"),
    [
        ("${X#*/}", "b/c.d.e"),
        ("${X##*/}", "c.d.e"),
        ("${X%.*}", "a/b/c.d"),
        ("${X%%.*}", "a/b/c"),
        ("${X#none}", "a/b/c.d.e"),
        ('"${X##*/}"', "c.d.e"),
        ("${X:+set}", "set"),
        ("${NONE:+set}", None),
        ("${EMPTY:+set}", None),
    ],
)
def test_expansions_that_change_a_value(expansion: str, value: str | None) -> None:
    listed = words(f"X=a/b/c.d.e\nEMPTY=\ntorchrun a.py --a {expansion}", "x")
    assert listed[3:] == ([] if value is None else [value])


def test_flags_in_the_place_of_a_value() -> None:
    assert words("F=512\ntorchrun a.py ${F:+--ffn $F} ${G:+--g $G} --z", "x")[2:] == ["--ffn", "512", "--z"]


def test_more_flags_behind_the_script() -> None:
    assert launch('torchrun a.py --a 1 "$@"', "x", ("--b", "2"))[0][2:] == ["--a", "1", "--b", "2"]


def test_a_function_has_parameters_of_its_own() -> None:
    text = "f() { A=$1; B=$2; }\nC=$1\nf 5\ntorchrun a.py --a $A --b $B --c $C"
    assert launch(text, "x", ("9",))[0][2:] == ["--a", "5", "--b", "--c", "9"]


def test_blanks_between_variables_in_quotes() -> None:
    text = 'A=(--x 1 --y 4)\nB=(--z 5)\nc="torchrun a.py \\\n   ${A[@]} \\\n   ${B[@]}"\neval $c'
    assert words(text, "x")[2:] == ["--x", "1", "--y", "4", "--z", "5"]


def test_eval_takes_quotes_away() -> None:
    assert words("c=\"torchrun a.py --a '([1]*4)' --b 'x\\|y'\"\neval $c", "x")[2:] == ["--a", "([1]*4)", "--b", "x\\|y"]


@pytest.mark.parametrize(
    ("expansion", "value"),
    [
        ('"${@:2}"', ["b c", "d"]), ("${@:3:1}", ["d"]), ('"${A[@]:1}"', ["y", "z"]), ("${A[@]:0:2}", ["x", "y"]),
        ("${S:2}", ["cdef"]), ("${S:1:3}", ["bcd"]), ("${S: -2}", ["ef"]), ("${S: -3:1}", ["d"]), ("${S:0:-1}", ["abcde"]),
        ("${S:1:2}x", ["bcx"]),
    ],
)  # fmt: skip
def test_parts_of_lists_and_texts(expansion: str, value: list[str]) -> None:
    text = f"A=(x y z)\nS=abcdef\npython train.py --flag {expansion} --end 1"
    listed, _ = launch(text, "run.sh", ["a", "b c", "d"])
    assert listed[listed.index("--flag") + 1 : listed.index("--end")] == value


SHAPE = 'LAYERS=16\nARGS="--num-layers $LAYERS --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --vocab-size 32000"\n'
REST = "--micro-batch-size 1 --global-batch-size 64 --swiglu"


@pytest.mark.parametrize(
    "line",
    [
        "source conf/shape.sh", ". ./conf/shape.sh", 'source "$(dirname "$0")/conf/shape.sh"',
        'HERE=$(cd "$(dirname "$0")" && pwd)\nsource "${HERE}/conf/shape.sh"', 'source "${HOME_OF_ALL}/here/conf/shape.sh"',
        'SIZE=shape\nsource "${HERE}/conf/${SIZE}.sh"',
    ],
)  # fmt: skip
def test_a_sourced_file_is_read(tmp_path: Path, line: str) -> None:
    (tmp_path / "here" / "conf").mkdir(parents=True)
    (tmp_path / "here" / "conf" / "shape.sh").write_text(SHAPE)
    run = tmp_path / "here" / "run.sh"
    run.write_text(f"{line}\nsource /etc/profile\ntorchrun pretrain_gpt.py $ARGS {REST}\n")
    imported = import_job(run)
    assert imported.model.layers == 16
    assert "what conf/shape.sh says, which the script reads or starts" in imported.assumed


def test_a_script_that_starts_another_one_with_words(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text(f"MBS=$1\nLAYERS=${{2:-4}}\n{SHAPE.splitlines()[1]}\npython pretrain_gpt.py $ARGS {REST}\n")
    outer = tmp_path / "outer.sh"
    outer.write_text("#!/bin/bash\nexport X=1\nbash inner.sh 1 24\n")
    assert import_job(outer).model.layers == 24


def test_files_that_name_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("source b.sh\nsource b.sh\n" + SHAPE + f"python pretrain_gpt.py $ARGS {REST}\n")
    (tmp_path / "b.sh").write_text("source a.sh\nsource a.sh\n")
    assert import_job(tmp_path / "a.sh").model.layers == 16


def test_a_sourced_file_that_is_missing_leaves_its_variables_open(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"source conf/shape.sh\ntorchrun pretrain_gpt.py --num-layers $LAYERS {REST}\n")
    with pytest.raises(SpecError, match="LAYERS"):
        import_job(tmp_path / "run.sh")


def test_a_file_with_blanks_in_its_name_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "my run.sh"
    path.write_text("x")
    assert call_of(path) is None and file_of(str(path)) == str(path)
    call = call_of(f"A='b c' sh '{path}' 1 2")
    assert call is not None
    assert (call.script, call.arguments, dict(call.environment)) == (path, ("1", "2"), {"A": "b c"})
    assert call_of("no such.sh 1") is None and call_of("open 'quote") is None


def test_a_variable_that_nothing_sets_can_be_stated(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    flags = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 99 --seq-length 128"
    path.write_text(f"torchrun a.py {flags} --world_size=$(($NODES * 8)) --micro_batch 2 --global-batch-size $GBS\n")
    with pytest.raises(SpecError, match="--set plan.global_batch=N states the value"):
        import_job(path)
    imported = import_job(path, stated=Stated({"plan.global_batch": 64}, gpus=8))
    assert imported.plan is not None
    assert (imported.plan.dp, imported.plan.micro_batch) == (8, 2)
    assert "no --world-size: the script is not told" in imported.assumed


def test_a_script_that_calls_itself_without_end_is_refused() -> None:
    with pytest.raises(SpecError, match="200000 statements|20000 words"):
        words("f() { f; f; }\nf\n", "x")
    assert set(words("x='eval $x; eval $x; eval $x'\neval $x\n", "x")) == {"eval", "$x", "$x;"}


BENCH = """#!/usr/bin/env bash
source "$(dirname "$0")/lib.sh"
declare -A DRAFTS=([low]=3 [high]=1)
DP=${DP_ATTENTION:-false}
PARALLEL=(--tensor-parallel-size "$TP")
[[ "$DP" == "true" ]] && PARALLEL+=(--data-parallel-size "$DP_SIZE")
SPEC="{\\"method\\": \\"mtp\\", \\"num_speculative_tokens\\": ${DRAFTS[$LEVEL]}}"
CMD=(vllm serve "$MODEL_PATH" --served-model-name "$MODEL" "${PARALLEL[@]}" --max-num-seqs "$(( CONC > 64 ? CONC : 64 ))"
  --max-model-len auto --speculative-config "$SPEC")
"${CMD[@]}" > server.log 2>&1 &
bench --input-len "$ISL" --output-len "$OSL" --max-concurrency "$CONC"
"""
LIB = """bench() {
  local flags=()
  while [[ $# -gt 0 ]]; do
    case $1 in
      --input-len) flags+=(--random-input-len "$2"); shift 2 ;;
      --output-len) flags+=(--random-output-len "$2"); shift 2 ;;
      *) flags+=("$1" "$2"); shift 2 ;;
    esac
  done
  flags+=(--random-range-ratio 1.0 --num-prompts $(( $CONC * 10 )))
  python3 benchmark_serving.py --backend vllm --dataset-name random "${flags[@]}"
}
"""


def test_a_script_takes_what_it_is_started_with(tmp_path: Path) -> None:
    """Variables of the caller, maps, arrays that are commands, functions of a sourced file, the name by which a model is served."""
    (tmp_path / "bench.sh").write_text(BENCH)
    (tmp_path / "lib.sh").write_text(LIB)
    call = f"MODEL=zai-org/GLM-4.5-Air TP=4 CONC=96 ISL=1024 OSL=128 LEVEL=low bash {tmp_path}/bench.sh"
    found = read_launch(Path(call))
    assert found is not None and found.fields["model"] == "zai-org/GLM-4.5-Air" and found.fields["speculate"] == "mtp,drafts=3"
    load = {key: found.fields[key] for key in ("tp", "running", "isl", "osl", "concurrency", "requests")}
    assert load == {"tp": 4, "running": 96, "isl": "1024", "osl": "128", "concurrency": 96, "requests": 960}
    assert any("by which it is served" in line for line in found.assumed)
    assert wt.read(call).facts["tp"] == 4
    with pytest.raises(FileError, match="absent.sh: got 'no such file'"):
        wt.serve_predict(f"MODEL=x TP=4 {tmp_path}/absent.sh", "h200-ib")
    answer = wt.serve_predict(call, "h200-ib", requests=8)
    assert answer.server.plan.tp == 4 and any("bench.sh starts vLLM" in note for note in answer.notes)


def test_what_a_script_is_not_told_is_asked_for_at_once(tmp_path: Path) -> None:
    (tmp_path / "bench.sh").write_text(BENCH)
    with pytest.raises(SpecError, match=r"TP for --tensor-parallel-size; .*LEVEL for --speculative-config; MODEL_PATH") as told:
        wt.serve_predict(tmp_path / "bench.sh", "h200-ib")
    assert str(told.value).endswith('LEVEL=VALUE MODEL_PATH=NAME bench.sh".')
    (tmp_path / "plain.sh").write_text('vllm serve Qwen/Qwen3-8B -tp "$TP" --max-num-seqs $CONC\n')
    with pytest.raises(SpecError, match="Or state --tp N"):
        wt.serve_predict(tmp_path / "plain.sh", "h200-ib")
    answer = wt.serve_predict(tmp_path / "plain.sh", "h200-ib", tp=2, requests=4)
    assert answer.server.plan.tp == 2 and any("the default for --max-num-seqs: nothing sets $CONC" in note for note in answer.notes)


def test_options_that_a_script_writes_have_its_values(tmp_path: Path) -> None:
    """Two here-documents of one file, with what the caller sets in them."""
    path = tmp_path / "start.sh"
    path.write_text(
        "OPTIONS=opts.yml\ncat > $OPTIONS <<EOF\nenable_attention_dp: $DP\nkv_cache_config:\n  free_gpu_memory_fraction: 0.8\nEOF\n"
        "cat << EOF >> $OPTIONS\ncuda_graph_config:\n  batch_sizes: [${LIST%, }]\nEOF\n"
        "trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --extra_llm_api_options=$OPTIONS\n"
    )
    found = read_launch(Path(f"DP=true {path}"))
    assert found is not None and (found.fields["tp"], found.fields["dp"]) == (1, 8) and found.fields["memory"] == 0.8


def test_what_stands_before_a_command_is_that_command_alone(tmp_path: Path) -> None:
    """A later command with GPUs of its own (a merge, an inference) leaves those of the training alone."""
    script = tmp_path / "run.sh"
    train = "swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B-Instruct --model_name swift-robot --tuner_type lora_llm"
    later = "NPROC_PER_NODE=1 CUDA_VISIBLE_DEVICES=0 swift infer --stream true"
    script.write_text(f"NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 {train}\n{later}\n")
    found = import_job(script, on=load_job("llama3-8b-8xh100"))
    assert found.job is not None and (found.job.cluster.gpus, found.model.name) == (4, "qwen2.5-7b")
    assert any("two sequences" in line for line in found.assumed) and found.model.lora is not None
