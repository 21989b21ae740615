// windtunnel.fleet._ring: the rows of a ring for Python. A module of its own: a training process loads nothing of the simulator.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <deque>
#include <stdexcept>
#include <utility>

#include "ring/rows.h"

namespace nb = nanobind;
using namespace nb::literals;
using wt::ring::Call;
using wt::ring::Clock;
using wt::ring::Row;
using wt::ring::Rows;
using wt::ring::State;

namespace {

// Rows over a writable buffer of Python, which is held until `release`.
class RowWriter : public Rows {
 public:
  static RowWriter* over(nb::object file, std::size_t rows_at, std::size_t head_at, std::size_t step_at, std::size_t dropped_at,
                         std::int64_t offset, double drift) {
    Py_buffer view{};
    if (PyObject_GetBuffer(file.ptr(), &view, PyBUF_WRITABLE) != 0) throw nb::python_error();
    const auto size = static_cast<std::size_t>(view.len);
    const auto fits = [&](std::size_t at) { return at % 8 == 0 && at + 8 <= rows_at; };
    if (rows_at % 8 != 0 || !fits(head_at) || !fits(step_at) || !fits(dropped_at) || size < rows_at + sizeof(Row)) {
      PyBuffer_Release(&view);
      throw std::invalid_argument("a buffer that is too small for its rows");
    }
    auto* start = static_cast<std::byte*>(view.buf);
    const auto word = [&](std::size_t at) { return reinterpret_cast<std::int64_t*>(start + at); };
    return new RowWriter(view, std::span(start + rows_at, size - rows_at), Words{word(head_at), word(step_at), word(dropped_at)},
                         Clock(offset, drift));
  }
  ~RowWriter() { release(); }
  void release() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
    view_.obj = nullptr;
  }
  bool held() const { return view_.obj != nullptr; }

 private:
  RowWriter(Py_buffer view, std::span<std::byte> rows, Words words, Clock clock) : Rows(rows, words, clock), view_(view) {}
  Py_buffer view_;
};

// After `release` the memory is gone: a late hook writes nothing.
std::int64_t opened(RowWriter& rows, int section, int name, int micro_batch) {
  return rows.held() ? rows.open(section, name, micro_batch) : -1;
}

std::optional<std::int64_t> opened_call(RowWriter& rows, int group, int comm, int name, std::int64_t size, std::int64_t call,
                                        int peer, bool sends) {
  if (!rows.held()) return std::nullopt;
  return rows.open_call(Call{group, comm, name, size, call, peer, sends});
}

std::int64_t written(RowWriter& rows, int section, int step, std::int64_t begin, std::int64_t nanos, std::int64_t host_nanos,
                     int state, int name, int comm, std::int64_t size, int group, std::int64_t call, int peer, bool sends,
                     int micro_batch) {
  if (!rows.held()) return -1;
  Row row{};
  row.begin = begin;
  row.nanos = nanos;
  row.host_nanos = host_nanos;
  row.bytes = size;
  row.call = call;
  row.step = step;
  row.peer = peer;
  row.name = static_cast<std::int16_t>(name);
  row.group = static_cast<std::int16_t>(group);
  row.micro_batch = static_cast<std::int16_t>(micro_batch);
  row.section = static_cast<std::uint8_t>(section);
  row.comm = static_cast<std::uint8_t>(comm);
  row.state = static_cast<std::uint8_t>(state);
  row.sends = sends ? 1 : 0;
  return rows.write(row);
}

// All-reduces that DDP's reducer asks for, each a row: what runs once a bucket, with cold caches, in one frame that is compiled.
// A row ends when its work is seen to have ended. The works of a reducer end in their order, so only the oldest is asked.
class BucketCalls {
 public:
  BucketCalls(nb::typed<nb::object, RowWriter> rows, nb::object all_reduce, int comm, int name)
      : rows_(std::move(rows)),
        writer_(nb::cast<RowWriter*>(rows_)),
        all_reduce_(std::move(all_reduce)),
        comm_(comm),
        name_(name) {}

  // The work of all_reduce(group, tensors, options), which is the group's call `number`.
  nb::object reduce(nb::handle group, nb::list tensors, nb::handle options, int entry, std::int64_t number) {
    std::int64_t size = 0;
    for (nb::handle tensor : tensors) size += nb::cast<std::int64_t>(tensor.attr("nbytes"));
    const auto row = opened_call(*writer_, entry, comm_, name_, size, number, -1, false);
    nb::object work = all_reduce_(group, tensors, options);
    if (!row) return work;
    if (writer_->held()) writer_->issued(*row);
    close_ended();
    if (open_.size() >= most) open_.pop_front();
    open_.emplace_back(work, *row);
    return work;
  }

  void close_ended() {
    while (!open_.empty() && nb::cast<bool>(open_.front().first.attr("is_completed")())) close_oldest();
  }
  void close_all() {
    while (!open_.empty()) close_oldest();
  }
  nb::object last() const { return open_.empty() ? nb::none() : open_.back().first; }

 private:
  static constexpr std::size_t most = 4096;  // works that nobody waited for: beyond so many the oldest is forgotten
  void close_oldest() {
    const auto oldest = std::move(open_.front());
    open_.pop_front();
    if (writer_->held()) writer_->close(oldest.second);
  }

  nb::object rows_;
  RowWriter* writer_;
  nb::object all_reduce_;
  int comm_, name_;
  std::deque<std::pair<nb::object, std::int64_t>> open_;
};

}  // namespace

NB_MODULE(_ring, m) {
  nb::set_leak_warnings(false);  // hooks live until the process ends
  nb::class_<RowWriter>(m, "Rows")
      .def(nb::new_(&RowWriter::over), "file"_a, "rows_at"_a, "head_at"_a, "step_at"_a, "dropped_at"_a, "offset"_a = 0,
           "drift"_a = 0.0)
      .def("release", &RowWriter::release)
      .def("now", [](const RowWriter& rows) { return rows.now(); })
      .def("open", &opened, "section"_a, "name"_a = -1, "micro_batch"_a = -1)
      .def("open_call", &opened_call, "group"_a, "comm"_a, "name"_a, "size"_a, "call"_a, "peer"_a = -1, "sends"_a = false)
      .def("close",
           [](RowWriter& rows, std::int64_t row) {
             if (rows.held()) rows.close(row);
           })
      .def(
          "next_step", [](RowWriter& rows, std::int64_t open_row) { return rows.held() ? rows.next_step(open_row) : -1; },
          "open_row"_a = -1)
      .def("begin_step",
           [](RowWriter& rows) {
             if (rows.held()) rows.begin_step();
           })
      .def("at_step",
           [](RowWriter& rows, std::int64_t number) {
             if (rows.held()) rows.at_step(number);
           })
      .def("drop",
           [](RowWriter& rows, std::int64_t count) {
             if (rows.held()) rows.drop(count);
           })
      .def("issued",
           [](RowWriter& rows, std::int64_t row) {
             if (rows.held()) rows.issued(row);
           })
      .def("settle",
           [](RowWriter& rows, std::int64_t row, std::int64_t begin, std::int64_t nanos) {
             if (rows.held()) rows.settle(row, begin, nanos);
           })
      .def("past", [](RowWriter& rows, int section, int name, std::int64_t begin,
                      std::int64_t nanos) { return rows.held() && rows.past(section, name, begin, nanos); })
      .def("write", &written, "section"_a, "step"_a, "begin"_a, "nanos"_a, "host_nanos"_a, "state"_a, "name"_a, "comm"_a, "size"_a,
           "group"_a, "call"_a, "peer"_a, "sends"_a, "micro_batch"_a)
      .def("rewrite",
           [](RowWriter& rows, std::int64_t row, std::int64_t nanos, std::int64_t host_nanos, int state) {
             if (rows.held()) rows.rewrite(row, nanos, host_nanos, static_cast<State>(state));
           })
      .def("begin_of", [](const RowWriter& rows, std::int64_t row) { return rows.held() ? rows.begin_of(row) : 0; })
      .def("watch_cores", [](RowWriter& rows, int first, int last, int gap, int name,
                             std::int64_t least) { rows.watch_cores(first, last, gap, name, least); })
      .def("core_wait", [](const RowWriter& rows) { return rows.core_wait(); })
      .def("head", [](const RowWriter& rows) { return rows.head(); })
      .def_ro("step", &RowWriter::step)
      .def_rw("left", &RowWriter::left)
      .def_ro("dropped", &RowWriter::dropped)
      .def_rw("rows_a_step", &RowWriter::rows_a_step)
      .def_rw("every", &RowWriter::every)
      .def_rw("calls", &RowWriter::calls)
      .def_rw("live", &RowWriter::live);
  nb::class_<BucketCalls>(m, "BucketCalls")
      .def(nb::init<nb::typed<nb::object, RowWriter>, nb::object, int, int>(), "rows"_a, "all_reduce"_a, "comm"_a, "name"_a)
      .def("reduce", &BucketCalls::reduce, "group"_a, "tensors"_a, "options"_a, "entry"_a, "number"_a)
      .def("close_ended", &BucketCalls::close_ended)
      .def("close_all", &BucketCalls::close_all)
      .def_prop_ro("last", &BucketCalls::last);
}
