"""Training logs of each framework: steps in seconds, tokens, loss and memory as the lines print them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from windtunnel.base.errors import FileError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content, Reading
from windtunnel.records.run import Run, Steps

MEGATRON = (
    "------------------------ arguments ------------------------\n"
    "  global_batch_size ............................... 8\n"
    "  seq_length ...................................... 1024\n"
    "  tensor_model_parallel_size ...................... 4\n"
    "-------------------- end of arguments ---------------------\n"
    " iteration        1/     100 | consumed samples:   8 | elapsed time per iteration (ms): 2000.0 | learning rate: 1.0E-05"
    " | global batch size:     8 | lm loss: 1.1E+01 | number of nan iterations:   0 |\n"
    "[Rank 0] (after 1 iterations) memory (MB) | allocated: 10.0 | max allocated: 100.0 | reserved: 200.0 | max reserved: 200.0\n"
    "[Rank 1] (after 1 iterations) memory (MB) | allocated: 10.0 | max allocated: 300.0 | reserved: 400.0 | max reserved: 400.0\n"
    " iteration        2/     100 | consumed samples:           16 | elapsed time per iteration (ms): 1000.0 |"
    " throughput per GPU (TFLOP/s/GPU): 123.4 | global batch size:     8 | lm loss: 1.0E+01 |\n"
    "time (ms) | forward-compute: 30.62 | optimizer: 5.1 | batch generator: 0.2\n"
)


def imported(tmp_path: Path, text: str, name: str = "run.log") -> Reading:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    reading = read_files([path])
    assert reading.format == "training-log" and reading.content is Content.RUN
    return reading


def steps_of(reading: Reading) -> Steps:
    assert isinstance(reading.value, Run)
    return reading.value.steps


def test_megatron_lines_give_seconds_tokens_loss_and_the_largest_memory(tmp_path: Path) -> None:
    reading = imported(tmp_path, MEGATRON)
    steps = steps_of(reading)
    assert steps.step.tolist() == [1, 2] and steps.seconds.tolist() == [2.0, 1.0]
    assert steps.tokens.tolist() == [8192.0, 8192.0] and steps.loss.tolist() == [11.0, 10.0]
    assert steps.memory[0] == 300 * 2**20 and np.isnan(steps.memory[1])
    assert np.isnan(steps.tflops[0]) and steps.tflops[1] == 123.4
    assert reading.facts["args"] == {"global_batch_size": 8, "seq_length": 1024, "tensor_model_parallel_size": 4}
    assert reading.facts["timer_names"] == ["batch generator", "forward-compute", "optimizer"]
    assert reading.facts["elapsed_ms"]["median"] == 1500.0


def test_seconds_are_not_taken_for_milliseconds(tmp_path: Path) -> None:
    line = "[default7]: iteration    31214/  115311 | elapsed time per iteration (s): 106.46 | TFLOPs: 147.29 |\n"
    reading = imported(tmp_path, line)
    assert steps_of(reading).seconds.tolist() == [106.46] and steps_of(reading).tflops.tolist() == [147.29]
    assert reading.facts["unit"] == ["s"] and reading.facts["last"] == [31214, 115311]


def test_a_line_that_a_terminal_wrapped_is_one_line(tmp_path: Path) -> None:
    text = (
        "[default7]: iteration   5/ 10 | elapsed time per iteration (s): 100.0 | learning\n rate: 4.4E-05 | lm loss:"
        " 2.5E+00 | nan\niterations: 0 | TFLOPs: 149.10 |\n[default7]: iteration 6/ 10 | elapsed time per iteration (s): 101 |\n"
    )
    steps = steps_of(imported(tmp_path, text))
    assert steps.seconds.tolist() == [100.0, 101.0] and steps.tflops[0] == 149.1 and steps.loss[0] == 2.5


def test_a_restart_repeats_steps_and_ranks_do_not(tmp_path: Path) -> None:
    def line(step: int, ms: float) -> str:
        return f" iteration {step:8d}/     100 | elapsed time per iteration (ms): {ms} | global batch size: 8 |\n"

    text = (
        "".join(line(step, 1000.0) for step in (10, 20, 30, 40))
        + line(40, 3000.0)
        + "".join(line(step, 500.0) for step in (10, 20))
    )
    reading = imported(tmp_path, text)
    steps = steps_of(reading)
    assert steps.step.tolist() == [10, 20, 30, 40, 10, 20]
    assert steps.seconds.tolist() == [1.0, 1.0, 1.0, 2.0, 0.5, 0.5]  # the median of two ranks' lines of step 40
    assert reading.facts["restarts"] == 1


def test_torchtitan_seconds_follow_from_tokens_a_second(tmp_path: Path) -> None:
    text = (
        "[rank0]:2025-03-04 00:44:00,000 - root - INFO - Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]\n"
        "[rank0]:2025-03-04 00:44:01,000 - root - INFO - Trainer is initialized with local batch size 2, global batch size 8,"
        " gradient accumulation steps 1, sequence length 1000, total training steps 30\n"
        "[rank0]:2025-03-04 00:44:10,000 - root - INFO - \x1b[36mstep: 10  \x1b[32mloss:  7.5  \x1b[33mmemory: 2.00GiB(2.1%)"
        "  \x1b[34mtps: 1,000  \x1b[35mmfu: 39.73%\x1b[39m\n"
    )
    steps = steps_of(imported(tmp_path, text))
    assert steps.seconds.tolist() == [1.0]  # 8 x 1000 tokens / (1000 a device x 8 devices)
    assert steps.tokens.tolist() == [8000.0] and steps.memory.tolist() == [2.0 * 2**30] and steps.loss.tolist() == [7.5]


def test_torchtitan_without_a_mesh_takes_the_time_between_lines(tmp_path: Path) -> None:
    lines = "".join(
        f"2025-03-04 00:44:{second:02d},500 - root - INFO - step: {step}  loss:  3.4  memory: 68.57GiB(86.69%)  tps: 6,785\n"
        for step, second in ((10, 10), (20, 30), (30, 45))
    )
    seconds = steps_of(imported(tmp_path, lines)).seconds
    assert np.isnan(seconds[0]) and seconds[1:].tolist() == [2.0, 1.5]


def test_nemo_lines_count_by_the_global_step(tmp_path: Path) -> None:
    text = (
        "Training epoch 1, iteration 0/999 | lr: 2.9e-06 | global_batch_size: 512 | global_step: 19 | reduced_train_loss: 11.03 |"
        " train_step_timing in s: 46.86 | consumed_samples: 10240\n"
    )
    reading = imported(tmp_path, text)
    assert reading.facts["framework"] == "NeMo" and steps_of(reading).step.tolist() == [19]
    assert steps_of(reading).seconds.tolist() == [46.86] and steps_of(reading).loss.tolist() == [11.03]


def test_deepspeed_rates_become_seconds(tmp_path: Path) -> None:
    text = (
        "[2023-01-01 00:00:00,000] [INFO] [config.py:1001:print]   train_batch_size ............. 32\n"
        "[2023-01-01 00:00:01,000] [INFO] [timer.py:197:stop] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=15.0,"
        " CurrSamplesPerSec=16.0, MemAllocated=3.0GB, MaxMemAllocated=9.0GB\n"
    )
    steps = steps_of(imported(tmp_path, text))
    assert steps.step.tolist() == [10] and steps.seconds.tolist() == [2.0] and steps.memory.tolist() == [9.0 * 2**30]


def test_a_trainer_that_tells_only_its_length_gives_the_mean_step(tmp_path: Path) -> None:
    text = (
        "[2021-05-26 04:51:31,919] [INFO] [config.py:752:print]   train_batch_size ............. 50\n"
        "{'train_runtime': 30.0, 'train_samples_per_second': 5.0, 'train_steps_per_second': 0.1, 'epoch': 1.0}\n"
    )
    steps = steps_of(imported(tmp_path, text))
    assert steps.step.tolist() == [1, 2, 3] and steps.seconds.tolist() == [10.0] * 3  # 150 samples in batches of 50


def test_composer_blocks_are_steps(tmp_path: Path) -> None:
    text = (
        "[batch=20/4800]:\n\t Train throughput/batches_per_sec: 0.5000\n\t Train throughput/tokens_per_sec: 4096.0000\n"
        "\t Train memory/peak_allocated_mem: 30.0\n\t Train loss/train/total: 9.5\n"
    )
    steps = steps_of(imported(tmp_path, text))
    assert steps.step.tolist() == [20] and steps.seconds.tolist() == [2.0] and steps.tokens.tolist() == [8192.0]
    assert steps.memory.tolist() == [30e9] and steps.loss.tolist() == [9.5]


def test_dlrover_events_begin_and_end_steps(tmp_path: Path) -> None:
    text = (
        '[2025-04-21T23:31:09.000000] [426] [22b7] [Trainer] [#step] [BEGIN] {"global_step": 7}\n'
        '[2025-04-21T23:31:12.500000] [426] [22b7] [Trainer] [#step] [END] {"global_step": 8}\n'
        '[2025-04-21T23:31:13.000000] [426] [33b7] [Trainer] [#step] [BEGIN] {"global_\n'
    )
    reading = imported(tmp_path, text)
    assert steps_of(reading).step.tolist() == [8] and steps_of(reading).seconds.tolist() == [3.5]


def test_a_gzip_stream_that_breaks_off_gives_what_could_be_read(tmp_path: Path) -> None:
    lines = "".join(
        f" iteration {step:8d}/  9000 | elapsed time per iteration (ms): {1000 + step}.5 |\n" for step in range(1, 9000)
    )
    path = tmp_path / "run.log.gz"
    packed = gzip.compress(lines.encode())
    path.write_bytes(packed[: len(packed) * 2 // 3])
    reading = read_files([path])
    assert 0 < len(steps_of(reading)) < 8999 and steps_of(reading).seconds[0] == 1.0015
    assert any("breaks off" in text for text in reading.broken)


def test_a_log_without_a_step_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("------------------------ arguments ------------------------\n", encoding="utf-8")
    with pytest.raises(FileError, match="without a step"):
        read_files([path])


MEDIANS = {
    "meg_ds_3d_gpt2_perf_n16-ds-on.out.gz": (49, 137.1384), "meg_ds_zero_gpt2_perf_n16_nbs48_ms48.out.gz": (3, 123.9078),
    "meg_gpt2_base_n16_dp1_tp4_pp16-1809577.out.gz": (9, 2.7411), "meg_gpt2_base_n4_dp1_tp4_pp4-1809579.out.gz": (20, 1.3806),
    "bloom_chronicles_iterlog_block3.txt": (11, 106.33), "bloom_chronicles_iterlog_block6.txt": (5, 106.25),
}  # fmt: skip


@pytest.mark.parametrize(("name", "steps", "median"), [(name, *pair) for name, pair in MEDIANS.items()])
def test_real_megatron_logs(shared: Path, name: str, steps: int, median: float) -> None:
    path = shared / "samples/5_logs_dumps/megatron_logs" / name
    if not path.exists():
        pytest.skip("no samples beside the project")
    reading = read_files([path])
    assert reading.facts["iteration_lines"] == steps
    assert reading.facts["step_seconds"] == pytest.approx(median, rel=1e-9)


MAXTEXT = (
    "Num_devices: 256, shape (1, 1, 256, 1)\n"
    "I0101 completed step: 0, seconds: 30.500, TFLOP/s/device: 10.1, Tokens/s/device: 268.6, total_weights: 8, loss: 12.2\n"
    "I0101 completed step: 1, seconds: 2.000, TFLOP/s/device: 180.5, Tokens/s/device: 4096.0, total_weights: 8, loss: 11.9\n"
)
NANOTRON = (
    "07/01/2025 10:00:00 [INFO|DP=0|PP=0|TP=0|n1]: iteration: 5 / 100 | consumed_tokens: 10.5M | elapsed_time_per_iteration_ms:"
    " 2.5K | tokens_per_sec: 840K | tokens_per_sec_per_gpu: 105K | global_batch_size: 1.02K | lm_loss: 10.5 | lr: 3e-05 |"
    " model_tflops_per_gpu: 401 | hardware_tflops_per_gpu: 401 | grad_norm: 2.1\n"
)
NANOGPT = (
    "step 0: train loss 10.9, val loss 10.9\niter 0: loss 10.9886, time 9876.50ms, mfu -100.00%\n"
    "iter 1: loss 10.5, time 250.00ms, mfu 30.1%\n"
)


def test_frameworks_of_one_line(tmp_path: Path) -> None:
    maxtext = imported(tmp_path, MAXTEXT)
    steps = steps_of(maxtext)
    assert maxtext.facts["framework"] == "MaxText" and steps.seconds.tolist() == [30.5, 2.0] and steps.loss.tolist() == [12.2, 11.9]
    assert steps.tokens[1] == 256 * 2 * 4096 and steps.tflops.tolist() == [10.1, 180.5]
    nanotron = steps_of(imported(tmp_path, NANOTRON))
    assert nanotron.step.tolist() == [5] and nanotron.seconds.tolist() == [2.5] and nanotron.tokens.tolist() == [2.1e6]
    assert nanotron.tflops.tolist() == [401.0] and nanotron.loss.tolist() == [10.5]
    nanogpt = steps_of(imported(tmp_path, NANOGPT))
    assert nanogpt.seconds.tolist() == [9.8765, 0.25] and nanogpt.loss.tolist() == [10.9886, 10.5]


def test_states_of_a_trainer(tmp_path: Path) -> None:
    state = tmp_path / "trainer_state.json"
    state.write_text(
        '{"global_step": 20, "max_steps": 20, "log_history": [{"loss": 2.5, "step": 10}, {"loss": 2.0, "step": 20},'
        ' {"train_runtime": 50.0, "train_samples_per_second": 3.2, "step": 20}]}'
    )
    reading = read_files([state])
    assert reading.format == "trainer-state" and reading.value.steps.seconds.tolist() == [2.5, 2.5]
    assert reading.value.steps.loss.tolist() == [2.5, 2.0] and reading.facts["max_steps"] == 20
    lines = tmp_path / "trainer_log.jsonl"
    lines.write_text(
        '{"current_steps": 10, "total_steps": 100, "loss": 1.5, "elapsed_time": "0:01:00"}\n'
        '{"current_steps": 20, "total_steps": 100, "loss": 1.25, "elapsed_time": "0:01:30"}\n{"current_ste'
    )
    steps = read_files([lines]).value.steps
    assert steps.step.tolist() == [10, 20] and steps.seconds.tolist() == [6.0, 3.0] and steps.loss.tolist() == [1.5, 1.25]
    state.write_text('{"global_step": 0, "log_history": [1, {"loss": "x"}]}')
    with pytest.raises(FileError, match="no step"):
        read_files([state])


def test_the_first_logs_of_torchtitan_say_wps(tmp_path: Path) -> None:
    lines = [
        f"[rank0]:2024-08-01 12:00:{2 * step:02d},000 - root - INFO - \x1b[36mstep: {step}  \x1b[32mloss: {8 - step}.5  "
        f"\x1b[33mmemory: 1.00GiB(2.00%)  \x1b[34mwps: 6,123  \x1b[35mmfu: 38.20%\x1b[39m\n"
        for step in (1, 2, 3)
    ]
    reading = imported(tmp_path, "".join(lines))
    steps = steps_of(reading)
    assert reading.facts["framework"] == "torchtitan" and steps.seconds[1:].tolist() == [2.0, 2.0]
    assert steps.memory[0] == 2**30 and steps.loss.tolist() == [7.5, 6.5, 5.5]


def test_deepspeed_without_a_batch_takes_the_time_between_lines(tmp_path: Path) -> None:
    line = "[2024-05-05 10:00:{second:02d},000] [INFO] [timer.py:260:stop] epoch=0/micro_step={step}/global_step={step}, "
    line += "RunningAvgSamplesPerSec=18.1, CurrSamplesPerSec=18.9, MemAllocated=22.12GB, MaxMemAllocated=2.0GB\n"
    reading = imported(tmp_path, "".join(line.format(second=15 * k, step=10 * k) for k in (1, 2, 3)))
    steps = steps_of(reading)
    assert steps.step.tolist() == [10, 20, 30] and steps.seconds[1:].tolist() == [1.5, 1.5] and steps.memory[0] == 2 * 2**30


def test_deepspeed_s_breakdown_and_profile_are_steps(tmp_path: Path) -> None:
    micro = "[Rank 0] time (ms) | fwd_microstep: 41.0 | bwd_microstep: 90.0 | bwd_inner_microstep: 88.0 | step_microstep: 6.0\n"
    whole = "[Rank 0] time (ms) | fwd: 410.0 | bwd: 900.0 | bwd_inner: 880.4 | bwd_allreduce: 20.3 | step: 60.0\n"
    steps = steps_of(imported(tmp_path, (micro + whole) * 2))
    assert steps.step.tolist() == [1, 2] and steps.seconds.tolist() == pytest.approx([1.37, 1.37])
    text = "------- DeepSpeed Flops Profiler -------\nProfile Summary at step 10:\niter latency:    184.5 ms\n"
    profile = steps_of(imported(tmp_path, text))
    assert profile.step.tolist() == [10] and profile.seconds.tolist() == pytest.approx([0.1845])


def test_progress_bars_of_steps_and_no_others(tmp_path: Path) -> None:
    text = "Loading checkpoint shards: 100%|███| 4/4 [01:40<00:00, 25.00s/it]\n"
    text += "".join(
        f"\r  {k}%|▏ | {k}/500 [00:{6 * k:02d}<50:00,  6.02s/it]{{'loss': {3 - k}.5, 'learning_rate': 1e-05, 'epoch': 0.0{k}}}"
        for k in (1, 2)
    )
    reading = imported(tmp_path, text + "\n100%|███| 7/7 [00:01<00:00,  4.00it/s]\n")
    steps = steps_of(reading)
    assert steps.step.tolist() == [1, 2] and steps.seconds.tolist() == [6.02, 6.02] and steps.loss.tolist() == [2.5, 1.5]
    assert reading.facts["last"] == [2, 500]
    lightning = imported(tmp_path, "Epoch 0:   1%|▏| 5/500 [00:10<16:30,  0.50it/s, v_num=0, train_loss_step=9.5]\n")
    assert steps_of(lightning).seconds.tolist() == [2.0] and steps_of(lightning).loss.tolist() == [9.5]


def test_a_trainer_s_summary_gives_the_mean_step(tmp_path: Path) -> None:
    text = "{'loss': 2.9, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': 0.01}\n"
    text += "{'train_runtime': 100.0, 'train_samples_per_second': 2.0, 'train_steps_per_second': 0.05, 'train_loss': 2.3}\n"
    steps = steps_of(imported(tmp_path, text))
    assert steps.seconds.tolist() == [20.0] * 5


def test_a_summary_without_numbers_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="without a step"):
        imported(tmp_path, "{'train_runtime': 1.2.3, 'train_steps_per_second': 0.0.5}\n")
