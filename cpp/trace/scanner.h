// Events of a profiler's trace, from text into columns. What is out of the ordinary is left to the caller: single events by where
// they stand, whole batches by saying that nothing was read.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trace/json.h"
#include "trace/texts.h"

namespace wt::trace {

// The part of a text from `begin` up to `end`.
struct Spans {
  std::vector<std::int64_t> begin, end;
};

// The complete events (ph X) of a batch in columns, in the order of the text; numbers of names and places count over all batches.
struct Batch {
  std::vector<std::int32_t> place, name;
  std::vector<double> begin, duration;  // microseconds; NaN: none
  std::vector<std::int64_t> correlation, external, stream, device;
  std::vector<std::int32_t> sequence, forward;  // autograd's number of an operator, and the thread of its forward pass; -1: none
  std::vector<std::int32_t> inputs;             // number of the text of an operator's sizes and types of inputs; -1: none
  std::vector<double> bytes;
  std::vector<std::int64_t> noted;   // rows whose arguments may matter one by one
  Spans arguments;                   // of these rows
  Spans others;                      // events that are no complete ones and may matter
  std::vector<std::int64_t> counts;  // events by number of their phase in `phases`
  Texts phases;                      // as written, without quotes; "?" for what is no text
  std::int64_t events = 0;
};

class Scanner {
 public:
  // The events in `text`, separated by commas. False where it holds anything that this reader is not sure of: then nothing is kept.
  bool scan(std::string_view text, Batch& out);

  // Category, process and thread as written, each with its length before it; "-" for one that is not there.
  const Texts& places() const { return places_; }
  const Texts& names() const { return names_; }
  // "Input Dims" and "Input type" as written, a zero byte between them.
  const Texts& inputs() const { return inputs_; }

 private:
  struct Event;
  bool event(Json& json, std::string_view text, Batch& out);
  bool read(Json& json, Event& event);
  bool arguments(Json& json, Event& event);
  bool row(const Event& event, std::string_view text, Batch& out);
  std::int32_t place_of(const Event& event);

  std::int32_t inputs_of(const Event& event);

  Texts places_, names_, inputs_;
  std::string key_;
  std::string last_key_;
  std::int32_t last_place_ = -1;
};

}  // namespace wt::trace
