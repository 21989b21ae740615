// A cursor over JSON text that is sure of what it accepts: every text that it takes is valid, some valid text it does not take.
#pragma once

#include <cstdint>
#include <string_view>

namespace wt::trace {

enum class What : std::uint8_t { object, array, string, number, literal, null, word };

// One value as it is written. `plain`: a string without escapes, a number without a fraction or an exponent.
struct Value {
  std::string_view text;
  What what = What::null;
  bool plain = false;
};

class Json {
 public:
  explicit Json(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool over() const { return at_ == end_; }
  const char* at() const { return at_; }
  void blanks() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  bool take(char wanted) {
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  // A string with its quotes.
  bool string(Value& out);
  // Any value; `member`: of an object, where words for no number may stand, as C++ prints them (nan, -inf).
  bool value(Value& out, bool member, int depth = 0);
  // Calls `member(key)` at each member's value, which has to read it.
  template <class Member>
  bool object(Member&& member);

  // Whether a word for no number was met, and whether a string holds what could be taken for one behind a key.
  bool words = false, doubtful = false;

 private:
  bool escape();
  bool number(Value& out);
  bool word(Value& out);
  bool literal(Value& out, std::string_view wanted, What what);
  bool array(int depth);

  const char *at_, *end_;
};

template <class Member>
bool Json::object(Member&& member) {
  if (!take('{')) return false;
  blanks();
  if (take('}')) return true;
  for (;;) {
    Value key;
    if (!string(key)) return false;
    blanks();
    if (!take(':')) return false;
    blanks();
    if (!member(key)) return false;
    blanks();
    if (take('}')) return true;
    if (!take(',')) return false;
    blanks();
  }
}

}  // namespace wt::trace
