// Amounts over time in a limited number of bins. A bin is a power of two of picoseconds long, which doubles as time goes on, so
// that nobody has to know how long a run will be; neighbours then become one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace wt::net {

struct Sum {
  template <class T>
  static T of(T a, T b) {
    return a + b;
  }
};
struct Most {
  template <class T>
  static T of(T a, T b) {
    return std::max(a, b);
  }
};

template <class T, class Join>
class Bins {
 public:
  static constexpr int kMost = 128;  // bins, of which at least half are used once it has doubled

  // The bin of a moment.
  [[nodiscard]] T& at(std::int64_t picoseconds) {
    while ((picoseconds >> shift_) >= kMost) lengthen(shift_ + 1);
    return of(static_cast<std::size_t>(picoseconds >> shift_));
  }
  // At `rate` a second between two moments in seconds.
  void spread(double from, double to, double rate) {
    while (to > kMost * width()) lengthen(shift_ + 1);
    const double length = width();
    auto i = std::min(static_cast<std::size_t>(kMost - 1), static_cast<std::size_t>(from / length));
    for (double done = from; done < to; ++i) {
      const double edge = i + 1 == kMost ? to : std::min(to, static_cast<double>(i + 1) * length);
      if (edge <= done) continue;
      of(i) += rate * (edge - done);
      done = edge;
    }
  }
  // Bins of 2^shift picoseconds, unless they are longer already.
  void lengthen(int shift) {
    for (; shift_ < shift; ++shift_) {
      for (std::size_t i = 0; i < of_.size(); i += 2) of_[i / 2] = i + 1 < of_.size() ? Join::of(of_[i], of_[i + 1]) : of_[i];
      of_.resize((of_.size() + 1) / 2);
    }
  }

  [[nodiscard]] int shift() const { return shift_; }
  [[nodiscard]] double width() const { return std::ldexp(1e-12, shift_); }  // s
  [[nodiscard]] const std::vector<T>& values() const { return of_; }

 private:
  T& of(std::size_t i) {
    if (i >= of_.size()) of_.resize(i + 1);
    return of_[i];
  }

  int shift_ = 10;
  std::vector<T> of_;
};

// Rows of bins, all of one length.
template <class T>
struct Series {
  double width = 0.0;  // s
  std::size_t bins = 0;
  std::vector<T> values;  // [rows x bins]

  // One row after the other; `shift` is at least that of each.
  template <class Join>
  void add(Bins<T, Join> row, int shift) {
    row.lengthen(shift);
    values.insert(values.end(), row.values().begin(), row.values().end());
    values.resize(values.size() + bins - row.values().size());
  }
};

// The length and number of bins that all of these rows fit in.
template <class Rows, class Get>
std::pair<int, std::size_t> common(const Rows& rows, Get&& get) {
  int shift = 0;
  for (const auto& row : rows) shift = std::max(shift, get(row).shift());
  std::size_t bins = 0;
  for (const auto& row : rows) {
    const std::size_t step = std::size_t{1} << (shift - get(row).shift());
    bins = std::max(bins, (get(row).values().size() + step - 1) / step);
  }
  return {shift, bins};
}

}  // namespace wt::net
