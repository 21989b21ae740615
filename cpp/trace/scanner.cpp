#include "trace/scanner.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace wt::trace {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargest = 1e18;                        // microseconds: 30,000 years
constexpr std::int64_t kWidest = std::int64_t{1} << 62;  // whole numbers from here on are none
constexpr std::size_t kExact = 15;                       // digits of a whole number in text that a double holds

std::string_view inside(std::string_view quoted) { return quoted.substr(1, quoted.size() - 2); }

bool starts(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

// A number in a string, as one that stands without quotes; false for any other text.
bool unquote(const Value& value, Value& out) {
  if (!value.plain) return false;
  Json json(inside(value.text));
  return json.value(out, false) && json.over() && out.what == What::number;
}

bool parse(std::string_view text, double& out) {
#ifdef __cpp_lib_to_chars
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
#else
  return false;
#endif
}

// A whole number of at most 18 digits.
bool parse_short(const Value& value, std::int64_t& out) {
  if (!value.plain || value.text.size() > 18) return false;
  const bool negative = value.text[0] == '-';
  out = 0;
  for (std::size_t i = negative; i < value.text.size(); ++i) out = 10 * out + (value.text[i] - '0');
  if (negative) out = -out;
  return true;
}

// A number for a column of doubles; NaN for none. False where only the slow reader knows.
bool number_of(const Value& value, double& out) {
  Value number = value;
  if (value.what == What::null || value.what == What::word) {
    out = kNone;
    return true;
  }
  if (value.what == What::string && !unquote(value, number)) return false;
  if (number.what != What::number) return false;
  std::int64_t whole = 0;
  if (parse_short(number, whole)) {
    out = static_cast<double>(whole);
  } else if (!parse(number.text, out)) {
    return false;
  }
  if (!(std::abs(out) < kLargest)) out = kNone;
  return true;
}

// The same for a column of whole numbers; -1 for none.
bool whole_of(const Value& value, std::int64_t& out) {
  out = -1;
  if (value.what == What::null || value.what == What::word) return true;
  Value number = value;
  if (value.what == What::string && (!unquote(value, number) || !number.plain || number.text.size() > kExact)) return false;
  if (number.what != What::number) return false;
  if (parse_short(number, out)) return true;
  double real = 0.0;
  if (number.plain) {
    const auto read = std::from_chars(number.text.data(), number.text.data() + number.text.size(), out);
    return read.ec == std::errc() && out > -kWidest && out < kWidest;
  }
  if (!parse(number.text, real) || !(std::abs(real) < static_cast<double>(kWidest))) return false;
  out = static_cast<std::int64_t>(real);
  return true;
}

// -1 for what 32 bits do not hold.
std::int32_t narrow(std::int64_t number) {
  return number < 0 || number > std::numeric_limits<std::int32_t>::max() ? -1 : static_cast<std::int32_t>(number);
}

void add(Spans& to, std::string_view text, std::string_view part) {
  to.begin.push_back(part.data() - text.data());
  to.end.push_back(part.data() - text.data() + static_cast<std::int64_t>(part.size()));
}

}  // namespace

struct Scanner::Event {
  enum Field { phase, category, name, process, thread, time, duration, kFields };
  enum Argument { correlation, external, external_old, stream, device, sequence, forward, size, sizes, types, kArguments };
  std::array<Value, kFields> field{};  // an empty text: not there
  std::array<Value, kArguments> argument{};
  std::string_view args;
  bool matters = false;

  static int field_of(std::string_view key) {
    switch (key.size()) {
      case 2:
        return key == "ph" ? phase : key == "ts" ? time : -1;
      case 3:
        return key == "cat" ? category : key == "pid" ? process : key == "tid" ? thread : key == "dur" ? duration : -1;
      case 4:
        return key == "name" ? name : -1;
      default:
        return -1;
    }
  }
  static int argument_of(std::string_view key) {
    switch (key.size()) {
      case 5:
        return key == "bytes" ? size : -1;
      case 6:
        return key == "stream" ? stream : key == "device" ? device : -1;
      case 10:
        return key == "Input Dims" ? sizes : key == "Input type" ? types : -1;
      case 13:
        return key == "Fwd thread id" ? forward : -1;
      case 15:
        return key == "Sequence number" ? sequence : -1;
      case 11:
        return key == "correlation" ? correlation : key == "External id" ? external : key == "external id" ? external_old : -1;
      default:
        return -1;
    }
  }
};

bool Scanner::arguments(Json& json, Event& event) {
  event.argument = {};
  event.matters = false;
  const char* const start = json.at();
  const bool read = json.object([&](const Value& quoted) {
    if (!quoted.plain) return false;
    const std::string_view key = inside(quoted.text);
    const int at = Event::argument_of(key);
    Value value;
    if (!json.value(value, true)) return false;
    if (at >= 0) event.argument[static_cast<std::size_t>(at)] = value;
    event.matters |= key == "Collective name" || key == "wait_on_stream" || key == "iteration" || key == "step";
    return true;
  });
  event.args = {start, static_cast<std::size_t>(json.at() - start)};
  return read;
}

bool Scanner::read(Json& json, Event& event) {
  return json.object([&](const Value& quoted) {
    if (!quoted.plain) return false;
    const std::string_view key = inside(quoted.text);
    if (key == "args" && !json.over() && *json.at() == '{') return arguments(json, event);
    Value value;
    if (!json.value(value, true)) return false;
    if (key == "args") {
      event.argument = {};
      event.matters = false;
      event.args = {};
      return value.what == What::null;
    }
    if (const int at = Event::field_of(key); at >= 0) event.field[static_cast<std::size_t>(at)] = value;
    return true;
  });
}

std::int32_t Scanner::place_of(const Event& event) {
  key_.clear();
  for (const auto at : {Event::category, Event::process, Event::thread}) {
    const Value& value = event.field[at];
    key_ += value.text.empty() || value.what == What::word ? "-" : std::to_string(value.text.size()).append(":").append(value.text);
  }
  if (last_place_ < 0 || key_ != last_key_) {
    last_place_ = places_.number_of(key_);
    last_key_ = key_;
  }
  return last_place_;
}

std::int32_t Scanner::inputs_of(const Event& event) {
  const std::string_view sizes = event.argument[Event::sizes].text, types = event.argument[Event::types].text;
  if (sizes.empty() && types.empty()) return -1;
  key_.assign(sizes).append(1, '\0').append(types);
  return inputs_.number_of(key_);
}

bool Scanner::row(const Event& event, std::string_view text, Batch& out) {
  double begin = kNone, duration = kNone, size = kNone;
  std::array<std::int64_t, Event::kArguments> whole{};
  for (std::size_t at = 0; at < Event::size; ++at) {
    whole[at] = -1;
    if (!event.argument[at].text.empty() && !whole_of(event.argument[at], whole[at])) return false;
  }
  const Value &time = event.field[Event::time], &length = event.field[Event::duration], &bytes = event.argument[Event::size];
  if (!time.text.empty() && !number_of(time, begin)) return false;
  if (!length.text.empty() && !number_of(length, duration)) return false;
  if (!bytes.text.empty() && !number_of(bytes, size)) return false;
  const Value &external = event.argument[Event::external], &name = event.field[Event::name];
  const bool named = !external.text.empty() && external.what != What::null && external.what != What::word;
  const bool shapes = !event.argument[Event::sizes].text.empty();
  if (event.matters || (shapes && name.what == What::string && !name.text.empty() &&
                        (!name.plain || starts(name.text, "\"nccl:") || starts(name.text, "\"gloo:") ||
                         starts(name.text, "\"c10d::") || starts(name.text, "\"record_param")))) {
    out.noted.push_back(static_cast<std::int64_t>(out.place.size()));
    add(out.arguments, text, event.args);
  }
  out.place.push_back(place_of(event));
  out.name.push_back(names_.number_of(name.what == What::word || name.text.empty() ? std::string_view("null") : name.text));
  out.begin.push_back(begin);
  out.duration.push_back(duration);
  out.correlation.push_back(whole[Event::correlation]);
  out.external.push_back(whole[named ? Event::external : Event::external_old]);
  out.stream.push_back(whole[Event::stream]);
  out.device.push_back(whole[Event::device]);
  out.sequence.push_back(narrow(whole[Event::sequence]));
  out.forward.push_back(narrow(whole[Event::forward]));
  out.inputs.push_back(inputs_of(event));
  out.bytes.push_back(size);
  return true;
}

bool Scanner::event(Json& json, std::string_view text, Batch& out) {
  Event event;
  const char* const start = json.at();
  if (!read(json, event)) return false;
  const Value& phase = event.field[Event::phase];
  const bool said = phase.what == What::string && !phase.text.empty();
  if (said && !phase.plain) return false;
  const std::string_view word = said ? inside(phase.text) : "?";
  const auto number = static_cast<std::size_t>(out.phases.number_of(word));
  if (number == out.counts.size()) out.counts.push_back(0);
  ++out.counts[number];
  ++out.events;
  if (word == "X") return row(event, text, out);
  if (word == "B" || word == "E" || word == "i" || word == "I" || word == "M")
    add(out.others, text, {start, static_cast<std::size_t>(json.at() - start)});
  return true;
}

bool Scanner::scan(std::string_view text, Batch& out) {
  const std::size_t places = places_.size(), names = names_.size(), inputs = inputs_.size();
  Json json(text);
  json.blanks();
  bool read = !json.over();
  while (read) {
    read = event(json, text, out);
    json.blanks();
    if (!read || json.over()) break;
    read = json.take(',');
    json.blanks();
  }
  if (read && !(json.words && json.doubtful)) return true;
  places_.cut(places);
  names_.cut(names);
  inputs_.cut(inputs);
  last_place_ = -1;
  return false;
}

}  // namespace wt::trace
