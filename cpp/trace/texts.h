// Texts numbered in the order in which they were first met.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace wt::trace {

class Texts {
 public:
  std::int32_t number_of(std::string_view text) {
    if (2 * (texts_.size() + 1) > slots_.size()) grow();
    const std::uint64_t hash = hash_of(text);
    std::size_t slot = hash & (slots_.size() - 1);
    while (slots_[slot].number >= 0) {
      if (slots_[slot].hash == hash && texts_[static_cast<std::size_t>(slots_[slot].number)] == text) return slots_[slot].number;
      slot = (slot + 1) & (slots_.size() - 1);
    }
    slots_[slot] = {hash, static_cast<std::int32_t>(texts_.size())};
    texts_.emplace_back(text);
    return slots_[slot].number;
  }
  std::size_t size() const { return texts_.size(); }
  const std::string& operator[](std::size_t number) const { return texts_[number]; }
  // Forgets all texts from `number` on.
  void cut(std::size_t number) {
    if (number == texts_.size()) return;
    texts_.resize(number);
    refill(slots_.size());
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::int32_t number = -1;
  };
  static std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = text.size() * 0x9E3779B97F4A7C15u;
    const auto add = [&hash](std::uint64_t bytes) { hash = ((hash ^ bytes) * 0xD6E8FEB86659FD93u) ^ (hash >> 29); };
    std::size_t at = 0;
    for (std::uint64_t bytes; at + 8 <= text.size(); at += 8) {
      std::memcpy(&bytes, text.data() + at, 8);
      add(bytes);
    }
    std::uint64_t rest = 0;
    std::memcpy(&rest, text.data() + at, text.size() - at);
    add(rest);
    return hash ^ (hash >> 32);
  }
  void grow() { refill(slots_.empty() ? 256 : 2 * slots_.size()); }
  void refill(std::size_t size) {
    slots_.assign(size, Slot{});
    for (std::size_t number = 0; number < texts_.size(); ++number) {
      const std::uint64_t hash = hash_of(texts_[number]);
      std::size_t slot = hash & (size - 1);
      while (slots_[slot].number >= 0) slot = (slot + 1) & (size - 1);
      slots_[slot] = {hash, static_cast<std::int32_t>(number)};
    }
  }

  std::deque<std::string> texts_;
  std::vector<Slot> slots_;
};

}  // namespace wt::trace
