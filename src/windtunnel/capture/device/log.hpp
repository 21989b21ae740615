// What a captured process did, in the order in which it did it.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace capture {

enum class Kind : uint8_t {
  kOperator = 0,
  kAllocate = 1,  // a: address, b: bytes
  kFree = 2,      // a: address, b: bytes
  kRecord = 3,    // a: event
  kBlock = 4,     // a: event; the stream waits for it
  kHostWait = 5,  // a: event, or -1 for a stream, -2 for the device; the host waits
  kCall = 6,      // a: number of the call, b: bytes, c: group << 32 | peer + 1
  kCallWait = 7,  // a: number of the call; the stream waits for it
  kCopy = 8,      // b: bytes between host and device
  kRead = 9,      // a value of the device that the host reads; signature: by which rule
  kMark = 10,     // name: what begins
};

struct Entry {
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
  int64_t sequence = -1;  // of the node of the autograd graph that belongs to it
  int64_t host = 0;       // nanoseconds of the host's own work since the entry before it of this thread
  int32_t name = -1;
  int32_t signature = -1;
  int32_t stream = 0;
  int32_t module = -1;
  Kind kind = Kind::kOperator;
  uint8_t backward = 0;
  uint8_t flag = 0;  // an operator: 1 computed with true values, 4 part of a replayed graph; a call: asynchronous; a copy: 1 to the device, 2 from it
  uint8_t thread = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(Entry) == 64);

constexpr uint8_t kReplayed = 4;

class Log {
 public:
  std::mutex lock;
  std::vector<Entry> entries;
  std::vector<std::string> texts;
  bool on = true;

  int32_t number_of(const std::string& text);
  // Adds an entry of the current thread, stream and module. `begun`: when the recorder was entered, see `Away`.
  void add(Entry entry);
  size_t count();
  // Takes what happened on streams since an entry out, as a CUDA graph: its capture runs nothing. Returns the graph's number.
  size_t keep_graph(size_t begin);
  // A graph's replay, whose work the host does not launch.
  void repeat(size_t graph);

 private:
  std::unordered_map<std::string, int32_t> numbers_;
  std::vector<std::vector<Entry>> graphs_;
};

Log& the_log();

// Time that the recorder itself takes is not the host's. While one lives, nothing is recorded on its thread if `quiet`.
class Away {
 public:
  explicit Away(bool quiet = false);
  ~Away();
  Away(const Away&) = delete;
  Away& operator=(const Away&) = delete;

 private:
  bool quiet_;
};

bool is_quiet();
void set_module(int32_t module);
int32_t current_module();
int64_t number_call();
int64_t current_stream(int device = -1);
int current_device();
void set_current_device(int device);

}  // namespace capture
