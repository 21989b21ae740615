"""Launch scripts as words: what bash would put on the command line, as far as the text decides it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from windtunnel.base.errors import FileError
from windtunnel.formats.jobs.scripts.command import ScriptCommands, words


def launched(script: str) -> list[str]:
    """The words behind `train.py`."""
    listed = words(script, "script")
    return listed[listed.index("train.py") + 1 :]


@pytest.mark.parametrize(
    ("before", "flags", "expected"),
    [
        ("", "--a ${MBS:-4}", ["--a", "4"]),
        ("MBS=2", "--a ${MBS:-4}", ["--a", "2"]),
        ("MBS=${MBS:-8}", "--a $MBS", ["--a", "8"]),
        ("TP=2\nTP=${TP:-8}", "--a $TP", ["--a", "2"]),
        ("N=${NODES:-2}\nG=8\nW=$(($G*${N:-1}+1))", "--a $W", ["--a", "17"]),
        ("W=$((7/2))", "--a $W", ["--a", "3"]),
        ('D=4\n: "${G:=$((D * 6))}"\n: ${H:=8}', "--a $G --b $H", ["--a", "24", "--b", "8"]),
        ("A=(--x 1\n  # a comment\n  --y 2)\nA+=(--z)", '"${A[@]}"', ["--x", "1", "--y", "2", "--z"]),
        ('O=" --x 1 \\\n --y ${Q:-3}"', "$O", ["--x", "1", "--y", "3"]),
        ("export S=abc", "--a ${S}/d", ["--a", "abc/d"]),
        ('M=800M\ncase "$M" in\n 800M) T=1 ;;\n 8B) T=4 ;;\n *) exit 1 ;;\nesac', "--a $T", ["--a", "1"]),
        ('M=8B\ncase "$M" in\n 800M|8B) T=4 ;;\nesac', "--a $T", ["--a", "4"]),
        ('X=1\nif [ "$X" = 1 ]; then T=a; else T=b; fi', "--a $T", ["--a", "a"]),
        ('if [[ "$X" == MOCK ]] || [[ -z "$Y" ]]; then T=a; else T=b; fi', "--a $T", ["--a", "a"]),
        ('if [ -n "$Y" ]; then T=a; elif [ 3 -gt 2 ]; then T=b; fi', "--a $T", ["--a", "b"]),
        ('if [ ! -d "$C" ]; then exit 1; fi\nT=c', "--a $T", ["--a", "c"]),
        ("while [[ $# -gt 0 ]]; do T=wrong; shift; done\nT=c", "--a $T", ["--a", "c"]),
        ("for T in 1 2 4; do :; done", "--a $T", ["--a", "1"]),
        ("f() { T=$1; }\nf 6", "--a $T", ["--a", "6"]),
        ("", "--a $UNSET --b", ["--a", "$UNSET", "--b"]),
        ("L='([0]*3+[1]*58)'", '--a "$L"', ["--a", "([0]*3+[1]*58)"]),
        ("N=(4 8 2)\nI=2", "--a ${N[1]} --b ${N[$I]} --c ${N[$((I-1))]}", ["--a", "8", "--b", "2", "--c", "8"]),
        ("N=(4 8 2)", "--d ${#N[@]}", ["--d", "3"]),
        ("N=(4 8)\nN[1]=16\nN[2]=3", '--a "${N[@]}"', ["--a", "4", "16", "3"]),
        ('declare -A T=([x:1]=7 ["y z"]=8)\nK=x\nT[q]=9', '--a "${T[$K:1]}" --b "${T["y z"]}" --c ${T[q]}',
         ["--a", "7", "--b", "8", "--c", "9"]),
        ("C=4", "--a $(( C > 16 ? C : 16 )) --b $((C<16?C:16))", ["--a", "16", "--b", "4"]),
        ("X=$(printf '%s-%d-%.2f' a 3 2.5)", '--a "$X"', ["--a", "a-3-2.50"]),
        ("X=$(printf '%s,' 1 2 4)", '--a "$X"', ["--a", "1,2,4,"]),
        ('S="{\\"m\\": \\"x\\", \\"n\\": 3}"\nC=(torchrun train.py --c "$S")\n"${C[@]}"\nT=1', "", ["--c", '{"m": "x", "n": 3}']),
        ("D=$(false && echo npu || echo gpu)", "--a $D", ["--a", "gpu"]),
        ("X=1\n[[ $X == 1 ]] && A=2 || A=3\n[ $X -gt 1 ] && A=4\n(( X < 1 )) && A=5", "--a $A", ["--a", "2"]),
        ("[[ -n $B ]] || B=5\n[[ -z $B ]] && B=6", "--a $B", ["--a", "5"]),
        ("cat > /dev/null <<EOF\nX=2\nEOF\nX=3", "--a $X", ["--a", "3"]),
    ],
)  # fmt: skip
def test_what_bash_would_pass(before: str, flags: str, expected: list[str]) -> None:
    script = f"{before}\ntorchrun --nproc_per_node 8 train.py {flags}\n"
    assert launched(script) == expected
    apart = ("$UNSET", '"${C[', '"$C"', "#", "for T in")  # what is read otherwise: not set, exit, a loop's first value
    if (shell := shutil.which("bash")) is not None and not any(word in before + flags for word in apart):
        shown = 'torchrun() { while [ "$1" != train.py ]; do shift; done; shift; printf "%s\\n" "$@"; }\n'
        ran = subprocess.run([shell, "-c", shown + script], capture_output=True, text=True, timeout=60)
        assert ran.stdout.splitlines() == expected, ran.stderr


def test_the_command_with_most_flags_is_the_launch() -> None:
    script = "python preprocess.py --x 1\ntorchrun train.py --a 1 --b 2\necho --c train.py\n"
    assert launched(script) == ["--a", "1", "--b", "2"]


def test_a_command_inside_a_command() -> None:
    assert launched("A='--a 1'\nsrun bash -c \"cd x; python train.py $A\"") == ["--a", "1"]


def test_flags_that_no_command_uses_are_found() -> None:
    assert words("MODEL_ARGS=' --a 1 \\\n --b 2'\n", "conf") == ["--a", "1", "--b", "2"]


@pytest.mark.parametrize(
    "text", ["A=" + "(" * 300, "if " * 200, "A=$((" + "(" * 3000, "case $x in " * 99, "f() { f; }\nf --a x.py"]
)
def test_strange_scripts_end_in_words_or_in_our_error(text: str) -> None:
    try:
        assert isinstance(words(text, "script"), list)
    except FileError as error:
        assert "script" in str(error)


@pytest.mark.parametrize("name", ["模型", "ÿ61ÿ", "\U000ca3d8", "ÿ", "żółw"])
def test_characters_of_any_language(name: str) -> None:
    """In variables, arrays, quotes, braces, comments and substrings, with the bytes of what stands behind them."""
    script = """# NAME
X="NAME/data"
Y=(NAME.py "NAME NAME" {NAME})
torchrun train.py --num-layers 4 --data-path ${X%/*}/x --save "${Y[@]:1:1}" --load "${X##*/}-NAME" {NAME} ${X:0:1}
""".replace("NAME", name)
    flags = ["--num-layers", "4", "--data-path", f"{name}/x", "--save", f"{name} {name}", "--load", f"data-{name}"]
    assert launched(script) == [*flags, f"{{{name}}}", name[0]]


def test_files_that_a_script_writes_have_its_values() -> None:
    script = ScriptCommands("TP=4\ncat > $D/a.yml <<EOF\ntp: $TP\nx: ${Y}\nEOF\ncat >> a.yml <<'EOF'\nz: $TP\nEOF\n", "script")
    assert script.written_files == {"a.yml": "tp: 4\nx: ${Y}\nz: $TP"}


def test_what_a_reader_is_to_put_in_is_a_variable() -> None:
    """A document's `<your token>` is no redirection; bash's own redirections stay."""
    assert launched("export T=<your HF token>\ntorchrun train.py --a <N> --b 2 <in.txt >out.txt") == ["--a", "$N", "--b", "2"]


@pytest.mark.parametrize(
    "script",
    [
        'COMMAND="uv run train.py --a 1 b.c=2" CONTAINER=x sbatch --nodes=2 ray.sub',
        'export COMMAND="\n cd /x\n uv run train.py --a 1 b.c=2\n uv run check.py out"\nbash slurm/ray.sub',
        'echo "uv run train.py --a 1 b.c=2" > go.sh\nsrun --nodes=2 bash go.sh',
        'C="uv run train.py"\necho "$C --a 1" > go.sh\necho "true" >> go.sh\nbash -x && ./go.sh b.c=2; bash go.sh',
    ],
)
def test_what_a_script_starts_through_others(script: str) -> None:
    words_of = [list(words) for words in ScriptCommands(script, "script").commands if "train.py" in words]
    assert words_of and words_of[0][:5] == ["uv", "run", "train.py", "--a", "1"]
