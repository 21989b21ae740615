// Columns that are read by signed numbers of requests, blocks and places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace wt::serve {

using Number = std::int64_t;

inline std::size_t at(Number place) { return static_cast<std::size_t>(place); }

inline Number size_of(const auto& held) { return static_cast<Number>(held.size()); }

// Whole parts of `block` that hold `tokens`.
inline Number ceil_div(Number tokens, Number block) { return (tokens + block - 1) / block; }

// A column that a run writes.
template <class T>
class Rows {
 public:
  Rows() = default;
  explicit Rows(Number count, T value = T{}) : held_(at(count), value) {}
  T& operator[](Number place) { return held_[at(place)]; }
  const T& operator[](Number place) const { return held_[at(place)]; }
  [[nodiscard]] Number size() const { return static_cast<Number>(held_.size()); }
  std::vector<T> take() { return std::move(held_); }

 private:
  std::vector<T> held_;
};

// A column that a run reads.
template <class T>
class View {
 public:
  View() = default;
  View(std::span<const T> held) : held_(held) {}
  const T& operator[](Number place) const { return held_[at(place)]; }
  [[nodiscard]] Number size() const { return static_cast<Number>(held_.size()); }
  [[nodiscard]] bool empty() const { return held_.empty(); }
  [[nodiscard]] const T* data() const { return held_.data(); }

 private:
  std::span<const T> held_;
};

}  // namespace wt::serve
