// What Python sees of the recorder.
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>

#include "groups.hpp"
#include "operator_log.hpp"
#include "operators.hpp"
#include "storage.hpp"
#include "tensors.hpp"
#include "values.hpp"

namespace py = pybind11;

namespace capture {
namespace {

bool is_of_script(const std::string& file) {
  return file.find("/torch/") == std::string::npos && file.find("/windtunnel/capture/") == std::string::npos &&
         file.compare(0, 8, "<frozen ") != 0;
}

void add_mark(const std::string& what) {
  Away away;
  Entry entry;
  entry.kind = Kind::kMark;
  entry.name = the_log().number_of(what);
  entry.stream = static_cast<int32_t>(current_stream());
  the_log().add(entry);
}

py::bytes take_entries() {
  auto& log = the_log();
  std::lock_guard<std::mutex> guard(log.lock);
  auto bytes = py::bytes(reinterpret_cast<const char*>(log.entries.data()), log.entries.size() * sizeof(Entry));
  log.entries.clear();
  return bytes;
}

}  // namespace

std::string site_of_call() {
  py::gil_scoped_acquire gil;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  std::string site = "autograd";
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    std::string file = py::cast<std::string>(py::handle(code->co_filename));
    int line = PyFrame_GetLineNumber(frame);
    Py_DECREF(code);
    if (is_of_script(file)) {
      site = file + ":" + std::to_string(line);
      break;
    }
    auto* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  return site;
}

}  // namespace capture

PYBIND11_MODULE(windtunnel_capture_device, module) {
  using namespace capture;
  py::module_::import("torch.distributed");
  module.def("take_entries", &take_entries);
  module.def("texts", [] { return the_log().texts; });
  module.def("record", [](bool on) { the_log().on = on; });
  module.def("mark", &add_mark);
  module.def("number_of", [](const std::string& text) { return the_log().number_of(text); });
  module.def("set_module", &set_module);
  module.def("current_module", &current_module);
  module.def("memory", [] { return py::make_tuple(memory_now().live, memory_now().peak); });
  module.def("reset_peak", &reset_peak);
  module.def("set_device", &set_current_device);
  module.def("current_device", [] { return current_device(); });
  module.def("set_device_count", [](int count) { device_count() = count; });
  module.def("register_operators", &register_operators);
  module.def("make_group", &make_group);
  module.def("watch", &watch);
  module.def("take_watched", &take_watched);
  module.def("count_entries", [] { return the_log().count(); });
  module.def("keep_graph", [](size_t begin) { return the_log().keep_graph(begin); });
  module.def("replay_graph", [](size_t graph) { the_log().repeat(graph); });
  module.def("site_of_call", &site_of_call);
  module.def("resize_storage", [](const py::object& storage, int64_t bytes) {
    resize_storage(torch::createStorage(storage.ptr()), bytes);
  });
}
