"""The program: every verb does what its help says, every mistake is one clear line and exit code 2."""
import json
import os
import re

import pytest

PAIR = "h=2 sq=9 d=4 mask=causal direction=both"


def test_alone_it_shows_its_help(fovea):
    result = fovea(check=False)
    assert result.returncode == 2
    for verb in ("run", "explain", "bench", "show", "diff", "doctor", "cache", "compile"):
        assert re.search(rf"^  {verb}\b", result.stderr, re.MULTILINE)


@pytest.mark.parametrize("verb", ["run", "explain", "bench", "show", "diff", "doctor", "cache", "compile"])
def test_help_teaches_with_examples(fovea, verb):
    text = fovea(verb, "--help").stdout
    assert re.search(rf"^  fovea {verb}", text, re.MULTILINE), text


def test_version(fovea, root):
    header = (root / "include/fovea/fovea.h").read_text()
    assert fovea("--version").stdout.strip() == ".".join(re.findall(r"#define FOVEA_VERSION_\w+ (\d+)", header))


# --- mistakes ---


@pytest.mark.parametrize("typed, meant", [("shwo", "show"), ("rnu", "run"), ("explian", "explain"), ("dif", "diff")])
def test_unknown_verb(refused, typed, meant):
    assert f"unknown verb '{typed}'; did you mean '{meant}'?" in refused(typed, PAIR)


def test_a_verb_like_no_other_gets_no_suggestion(refused):
    text = refused("xylophone")
    assert "unknown verb 'xylophone'" in text and "did you mean" not in text


@pytest.mark.parametrize(
    "verb, typed, meant",
    [("show", "--tlie", "--tile"), ("run", "--chekc", "--check"), ("run", "--enigne=x", "--engine"),
     ("explain", "--jsno", "--json"), ("bench", "--secods", "--seconds")],
)
def test_unknown_option(refused, verb, typed, meant):
    name = typed.split("=")[0]
    assert f"unknown option '{name}' of {verb}; did you mean '{meant}'?" in refused(verb, PAIR, typed)


@pytest.mark.parametrize(
    "verb, line, rule",
    [
        ("run", "sqq=9", "unknown key 'sqq'; did you mean 'sq'?"),
        ("show", "msak=causal", "unknown key 'msak'; did you mean 'mask'?"),
        ("explain", "sq=9 dtpye=f32", "did you mean 'dtype'?"),
        ("diff", "mod=tnah(score)", "did you mean 'tanh'?"),
        ("diff", "mask=causal", "there is nothing to differentiate"),
        ("diff", "tanh(scroe)", "did you mean 'score'?"),
        ("show", "sq=9", "there is nothing to show"),
        ("show", "mask=causal sq=0", "there is nothing to show"),
        ("run", "sq=-1", "sq=-1"),
        ("run", "sq=x", "must be a whole number"),
        ("run", "dtype=fp32", "must be one of f32"),
        ("run", "h=3 hkv=2", "must be a multiple of hkv"),
        ("run", "sq=9 sq=9", "given twice"),
        ("run", 'mod="score', "quote"),
        ("run", "layout=thd sq=4", "cu_q"),
        ("run", "layout=thd cu_q=bound cu_k=bound sq=4 skv=4 b=1 tq=4 tk=4", "cu_q=bound: must be numbers"),
        ("run", "qlens=3,99 sq=9", "qlens"),
        ("run", 'sq=9 mod="score*s" scalar="s"', "'s' needs a value"),
        ("run", 'sq=9 mask="doc[q]==0" tensor="doc:i32[Sq]=dosc(3)"', "did you mean 'docs'?"),
        ("run", 'sq=9 mask="doc[q]==0" tensor="doc:i32[Sq]=nowhere.npy"', "cannot be opened"),
        ("run", "sq=9 direction=forward grads=q", "grads"),
    ],
)
def test_mistakes_in_a_line(refused, verb, line, rule):
    engine = ("--engine", "reference") if verb == "run" else ()
    assert rule in refused(verb, line, *engine)


@pytest.mark.parametrize(
    "words, rule",
    [
        (("run",), "LINE"),
        (("run", "b=1", "h=2", "sq=32"), "a line is one argument: 'b=1 h=2 sq=32'"),
        (("run", "mask=q >= k"), "got '>='; a value with spaces needs quotes"),
        (("run", "sq = 64"), "expected key=value, got 'sq'"),
        (("run", PAIR, "--engine", "refrence"), "did you mean 'reference'?"),
        (("run", PAIR, "--repeat", "0"), "--repeat"),
        (("run", PAIR, "--engine", "reference", "--device", "h200"), "H200"),
        (("explain", PAIR, "--device", "h20"), "h20"),
        (("explain", PAIR, "--device", "nowhere.json"), "nowhere.json"),
        (("show", "mask=causal", "--tile", "0"), "--tile 0"),
        (("show", "mask=causal", "--head", "99"), "--head 99"),
        (("show", "mask=causal", "--score", "high"), "--score high"),
        (("show", "mask=causal", "-o", "/nowhere/x.png"), "cannot write /nowhere/x.png"),
        (("show", "mask=causal", "-o", "x.jpg"), "cannot write x.jpg: its name must end in .png, .svg or .pdf"),
        (("bench", PAIR, "--seconds", "-1"), "--seconds"),
        (("cache", "claer"), "unknown argument 'claer' of cache; did you mean 'clear'?"),
        (("compile", "lines.txt"), "--output is required"),
        (("compile", "nowhere.txt", "-o", "x.fovea"), "nowhere.txt: cannot be opened"),
        (("run", PAIR, "--engine", "reference", "--dump", "/dev/null/x"), "--dump"),
    ],
)
def test_mistakes_in_the_arguments(fovea, words, rule):
    result = fovea(*words, check=False)
    assert result.returncode == 2
    assert rule in result.stderr and result.stderr.startswith("fovea: ")


def test_the_reference_engine_runs_only_when_named(fovea):
    result = fovea("run", PAIR, check=False)
    if result.returncode != 0:
        assert "reference" in result.stderr and "named" in result.stderr
    else:
        assert "engine reference" not in result.stdout


# --- what the verbs print and write ---


def test_run_prints_each_output_once(fovea):
    text = fovea("run", PAIR + " row_max=1 max_logit=1", "--engine", "reference", "--repeat", "3").stdout
    names = [line.split()[0] for line in text.splitlines()[1:]]
    assert names == ["o", "lse", "row_max", "max_logit", "dq", "dk", "dv", "forward:", "backward:"]
    assert "median of 3" in text


def test_data_come_from_the_seed(fovea):
    first, again, other = (fovea("run", PAIR, "--engine", "reference", "--seed", seed).stdout.split("forward:")[0]
                           for seed in ("5", "5", "6"))
    assert first == again != other


def test_check_passes_and_says_so(fovea):
    text = fovea("run", PAIR, "--engine", "reference", "--check").stdout
    assert text.count(" ok\n") == 5 + 3
    assert text.endswith("all within the limits\n")


def test_brief_answers_five_questions(fovea):
    text = fovea("run", PAIR, "--engine", "reference", "--brief").stdout
    names = [re.split("  +", line)[0] for line in text.splitlines()[:5]]
    assert names == ["engine", "why", "time", "against the reference", "gradients"]
    assert "it was named; otherwise cpu is the fastest of those that can" in text and "dq dk dv" in text


def test_check_finds_a_wrong_derivative(fovea):
    line = PAIR.replace("mask", 'mod="score*score*0.2" bprop="grad*score*0.41" mask')
    result = fovea("run", line, "--engine", "reference", "--check", check=False)
    assert result.returncode == 1
    assert re.search(r"^dq .*FAILED: finite differences give", result.stdout, re.MULTILINE)
    assert result.stdout.endswith("NOT within the limits\n")


def test_explain_lists_every_engine(fovea):
    text = fovea("explain", PAIR, "--device", "h200").stdout
    assert "forward" in text and "backward" in text and "reference" in text


@pytest.mark.parametrize("prove", [(), ("--prove",)])
def test_explain_for_a_gpu_without_cudnn(fovea, tmp_path, prove):
    """By the rules of the newest version that is known; what cuDNN cannot run is refused by those too. So on a machine that has
    no NVRTC either, and in a build without the headers of cuDNN."""
    for more, said in (
        ({}, r"cudnn +expected .*: by the rules of 9\.19\.0, and nothing can be compiled .*jit +expected"),
        ({"d": 320}, r"cudnn +no +d 320"),
    ):
        sizes = " ".join(f"{key}={value}" for key, value in {"d": 128, **more}.items())
        text = fovea("explain", f"b=4 h=16 sq=4096 {sizes} dtype=bf16 mask=causal", "--device", "h200", *prove,
                     env={**os.environ, "FOVEA_CUDNN_DIR": str(tmp_path), "FOVEA_CACHE_DIR": "off"}).stdout  # fmt: skip
        assert re.search(said, " ".join(text.split())), text


@pytest.mark.parametrize("prove", [(), ("--prove",)])
def test_explain_json_is_json(fovea, prove):
    verdicts = json.loads(fovea("explain", PAIR, "--json", *prove).stdout)
    assert set(verdicts) == {"forward", "backward"}
    assert "reference" in [one["engine"] for one in verdicts["backward"]["engines"]]
    assert "engines" in json.loads(fovea("explain", "sq=9", "--json").stdout)


def test_bench_takes_a_line_or_a_file(fovea, tmp_path):
    one = fovea("bench", PAIR, "--engine", "reference", "--seconds", "0").stdout
    assert "FLOP/s" in one and "backward" in one
    lines = tmp_path / "lines.txt"
    lines.write_text(f"# a comment\n{PAIR}\n\nh=1 sq=5 d=4\n")
    both = fovea("bench", lines, "--engine", "reference", "--seconds", "0").stdout
    assert PAIR in both and "h=1 sq=5 d=4" in both and "comment" not in both


def test_bench_of_a_file_without_lines(refused, tmp_path):
    (tmp_path / "empty.txt").write_text("# nothing\n")
    assert "has no lines" in refused("bench", tmp_path / "empty.txt")


def test_doctor(fovea):
    doctor = fovea("doctor", env={**os.environ, "FOVEA_NUM_THREADS": "2"}).stdout
    assert "FOVEA_CPU_ISA  " in doctor and "FOVEA_NUM_THREADS=2  " in doctor  # what can be set, and what is
    assert "cpu" in doctor and "cuda" in doctor and "reference" in doctor
    assert re.search(r"on \d+ processors? of \d+ memory nodes? \(NUMA\)", doctor)


def test_diff_prints_all_derivatives(fovea):
    text = fovea("diff", 'mod="cap*tanh(score/cap) + t[h]" scalar="cap=30" tensor="t:f32[H]"').stdout
    for by in ("score", "cap", "t[h]"):
        assert f"d mod / d {by}\n" in text
    assert "differs" not in fovea("diff", "tanh(score / 20) * 20").stdout.lower()
    wrong = fovea("diff", 'mod="score*score" bprop="grad*score"').stdout
    assert "DIFFERS" in wrong


@pytest.mark.parametrize("ending, start", [("png", b"\x89PNG\r\n\x1a\n"), ("svg", b"<?xml"), ("pdf", b"%PDF-")])
def test_show_writes_the_file_that_its_ending_says(fovea, tmp_path, ending, start):
    path = tmp_path / f"window.{ending}"
    result = fovea("show", 'mask="q >= k && q - k < 64" mod=alibi', "-o", path)
    assert result.stderr == f"wrote {path}\n"
    assert path.read_bytes().startswith(start) and path.stat().st_size > 10000
    assert list(tmp_path.iterdir()) == [path]


def test_show_without_a_font_says_what_to_install(fovea, tmp_path, monkeypatch):
    config = tmp_path / "fonts.conf"
    config.write_text(f"<fontconfig><dir>{tmp_path}/none</dir><cachedir>{tmp_path}/cache</cachedir></fontconfig>")
    monkeypatch.setenv("FONTCONFIG_FILE", str(config))
    result = fovea("show", "mask=causal", "-o", tmp_path / "mask.png")
    assert (tmp_path / "mask.png").stat().st_size > 10000
    assert "no font is installed (on Debian or Ubuntu: apt-get install fonts-dejavu-core)" in result.stderr


def test_show_without_cairo_says_what_to_install(build, run, tmp_path):
    program = build / "fovea-without-cairo"
    result = run(program, "show", "mask=causal", "-o", tmp_path / "mask.png", check=False)
    assert result.returncode == 2 and "apt-get install libcairo2-dev" in result.stderr
    assert not list(tmp_path.iterdir())
    assert "q >= k" in run(program, "show", "mask=causal sq=16").stdout


def test_show_draws_in_the_terminal(fovea):
    text = fovea("show", "mask=causal sq=16 skv=16").stdout
    assert "q >= k" in text and "\x1b" not in text


def test_a_formula_stands_for_a_line(fovea, refused):
    assert "q >= k" in fovea("show", "causal").stdout
    assert "a mask has no derivative" in refused("diff", "q >= k")
    assert "all within the limits" in fovea("run", "softcap(20)", "--check").stdout
    assert 'mask="q >= k"' in fovea("explain", "causal").stdout


def test_explain_for_many_ranks(fovea, refused):
    """Who computes and sends what: a table, or one rank's steps for programs."""
    line = "h=8 sq=4096 d=64 mask=causal"
    table = fovea("explain", line, "--ranks", "8", "--strategy", "ring", "--order", "zigzag").stdout
    assert "ring over 8 ranks, order zigzag, 16 pieces" in table
    assert "tiles computed: 136 of 256" in table
    assert "the busiest rank computes 1 times the mean" in table
    plan = json.loads(fovea("explain", line, "--ranks", "8", "--json", "--rank", "1").stdout)
    assert [bool(step["tiles"]) for step in plan["steps"]] == [True, True] + [False] * 6
    documents = 'h=8 sq=4096 mask="doc[b,q] == doc[b,k]" tensor="doc:i32[B,Sq]=docs(64)"'
    assert "tiles computed: 22 of 64" in fovea("explain", documents, "--ranks", "8").stdout
    assert "did you mean 'ring'?" in refused("explain", line, "--ranks", "8", "--strategy", "rnig")
