#include "trace/json.h"

#include <cstring>

namespace wt::trace {

namespace {

constexpr int kDeepest = 64;
constexpr std::ptrdiff_t kLongestNumber = 200;  // characters; longer ones may be larger than any double
constexpr std::uint64_t kEach = 0x0101010101010101u, kTop = 0x8080808080808080u;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
bool is_hex(char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); }

// The top bit of each byte that is no plain character of a string: a quote, a backslash, a control character, or not ASCII.
std::uint64_t special(std::uint64_t bytes) {
  const std::uint64_t quote = bytes ^ (kEach * '"'), slash = bytes ^ (kEach * '\\');
  return (((quote - kEach) & ~quote) | ((slash - kEach) & ~slash) | (bytes - kEach * 0x20) | bytes) & kTop;
}

// The length of the UTF-8 sequence at `at`, as Unicode defines it; 0 where there is none.
std::ptrdiff_t sequence(const char* at, const char* end) {
  const auto byte = [at](int i) { return static_cast<unsigned char>(at[i]); };
  const std::ptrdiff_t length = byte(0) < 0xC2 ? 0 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : byte(0) < 0xF5 ? 4 : 0;
  if (length == 0 || end - at < length) return 0;
  for (int i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if ((byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xED && byte(1) > 0x9F)) return 0;
  if ((byte(0) == 0xF0 && byte(1) < 0x90) || (byte(0) == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

}  // namespace

bool Json::escape() {
  if (end_ - at_ < 2) return false;
  switch (at_[1]) {
    case '"':
      doubtful = true;
      [[fallthrough]];
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
      at_ += 2;
      return true;
    case 'u':
      if (end_ - at_ < 6 || !is_hex(at_[2]) || !is_hex(at_[3]) || !is_hex(at_[4]) || !is_hex(at_[5])) return false;
      if ((at_[2] | 0x20) == 'd' && !(at_[3] >= '0' && at_[3] <= '7')) return false;  // half of a pair
      at_ += 6;
      return true;
    default:
      return false;
  }
}

bool Json::string(Value& out) {
  const char* const start = at_;
  if (!take('"')) return false;
  out.what = What::string;
  out.plain = true;
  if (at_ < end_ && (*at_ == ':' || *at_ == ' ' || *at_ == '\t')) doubtful = true;
  for (;;) {
    while (end_ - at_ >= 8) {
      std::uint64_t bytes;
      std::memcpy(&bytes, at_, 8);
      if (special(bytes) != 0) break;
      at_ += 8;
    }
    while (at_ < end_ && static_cast<unsigned char>(*at_) >= 0x20 && static_cast<unsigned char>(*at_) < 0x80 && *at_ != '"' &&
           *at_ != '\\')
      ++at_;
    if (at_ == end_) return false;
    if (*at_ == '"') {
      ++at_;
      out.text = {start, static_cast<std::size_t>(at_ - start)};
      return true;
    }
    if (*at_ == '\\') {
      out.plain = false;
      if (!escape()) return false;
    } else if (static_cast<unsigned char>(*at_) >= 0x80) {
      const std::ptrdiff_t length = sequence(at_, end_);
      if (length == 0) return false;
      at_ += length;
    } else {
      return false;
    }
  }
}

bool Json::number(Value& out) {
  const char* const start = at_;
  out.what = What::number;
  out.plain = true;
  take('-');
  if (at_ == end_) return false;
  if (*at_ == '0') {
    ++at_;
  } else if (is_digit(*at_)) {
    while (at_ < end_ && is_digit(*at_)) ++at_;
  } else {
    return false;
  }
  if (take('.')) {
    out.plain = false;
    const char* const digits = at_;
    while (at_ < end_ && is_digit(*at_)) ++at_;
    if (at_ == digits) return false;
  }
  if (at_ < end_ && (*at_ | 0x20) == 'e') {
    out.plain = false;
    ++at_;
    if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    const char* const digits = at_;
    while (at_ < end_ && is_digit(*at_)) ++at_;
    if (at_ == digits || at_ - digits > 2) return false;  // larger ones may be no double
  }
  out.text = {start, static_cast<std::size_t>(at_ - start)};
  return at_ - start < kLongestNumber;
}

bool Json::word(Value& out) {
  const char* const start = at_;
  if (*at_ == '+' || *at_ == '-') ++at_;
  for (const std::string_view one : {"nan", "infinity", "inf"}) {
    if (end_ - at_ < static_cast<std::ptrdiff_t>(one.size())) continue;
    bool same = true;
    for (std::size_t i = 0; i < one.size(); ++i) same = same && (at_[i] | 0x20) == one[i];
    if (!same) continue;
    at_ += one.size();
    if (at_ < end_ && (is_letter(*at_) || is_digit(*at_) || *at_ == '_')) return false;
    words = true;
    out = {{start, static_cast<std::size_t>(at_ - start)}, What::word, false};
    return true;
  }
  return false;
}

bool Json::literal(Value& out, std::string_view wanted, What what) {
  if (end_ - at_ < static_cast<std::ptrdiff_t>(wanted.size()) || std::memcmp(at_, wanted.data(), wanted.size()) != 0) return false;
  out = {{at_, wanted.size()}, what, true};
  at_ += wanted.size();
  return true;
}

bool Json::array(int depth) {
  if (!take('[')) return false;
  blanks();
  if (take(']')) return true;
  for (;;) {
    Value element;
    if (!value(element, false, depth)) return false;
    blanks();
    if (take(']')) return true;
    if (!take(',')) return false;
    blanks();
  }
}

bool Json::value(Value& out, bool member, int depth) {
  if (at_ == end_ || depth > kDeepest) return false;
  const char* const start = at_;
  switch (*at_) {
    case '"':
      return string(out);
    case '{':
      if (!object([this, depth](const Value&) {
            Value inner;
            return value(inner, true, depth + 1);
          }))
        return false;
      out = {{start, static_cast<std::size_t>(at_ - start)}, What::object, true};
      return true;
    case '[':
      if (!array(depth + 1)) return false;
      out = {{start, static_cast<std::size_t>(at_ - start)}, What::array, true};
      return true;
    case 't':
      return literal(out, "true", What::literal);
    case 'f':
      return literal(out, "false", What::literal);
    case 'n':
      if (literal(out, "null", What::null)) return true;
      break;
    default:
      break;
  }
  const char first = *at_ == '-' && end_ - at_ > 1 ? at_[1] : *at_;
  if (is_digit(first)) return number(out);
  return member && word(out);
}

}  // namespace wt::trace
