// The registry's entry of an algorithm: its name, its parameters with units and bounds, and its constructor.
// Parameters are doubles in SI units (s, B, B/s); switches are 0 or 1.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "net/packet/control.h"

namespace wt::net::packet {

inline constexpr Time kNoTime = std::numeric_limits<Time>::max();

struct Parameter {
  std::string_view name;
  std::string_view unit;  // "B/s", "s", "B", "0/1" or "" (a plain number)
  double value = 0.0;     // default
  double least = 0.0;
  double most = 0.0;
  std::string_view meaning;
};

// The parameters of `a`, then those of `b`.
template <std::size_t N, std::size_t M>
constexpr std::array<Parameter, N + M> joined(const std::array<Parameter, N>& a, const std::array<Parameter, M>& b) {
  std::array<Parameter, N + M> out{};
  for (std::size_t i = 0; i < N; ++i) out[i] = a[i];
  for (std::size_t i = 0; i < M; ++i) out[N + i] = b[i];
  return out;
}

// One value for each parameter of an algorithm, by name.
class Values {
 public:
  explicit Values(std::span<const Parameter> parameters) : parameters_(parameters) {
    for (const Parameter& p : parameters) values_.push_back(p.value);
  }
  [[nodiscard]] double operator[](std::string_view name) const { return values_[index(name)]; }
  [[nodiscard]] bool on(std::string_view name) const { return (*this)[name] != 0.0; }
  // Seconds as whole picoseconds, rounded.
  [[nodiscard]] Time time(std::string_view name) const { return static_cast<Time>(std::llround((*this)[name] / kPicosecond)); }
  void set(std::string_view name, double value) { values_[index(name)] = value; }

 private:
  [[nodiscard]] std::size_t index(std::string_view name) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].name == name) return i;
    }
    fail("no parameter ", name);
  }

  std::span<const Parameter> parameters_;
  std::vector<double> values_;
};

struct Algorithm {
  std::string_view name;
  std::string_view meaning;
  std::span<const Parameter> parameters;
  std::unique_ptr<Control> (*make)(const Values& values, std::int32_t pairs);
};

}  // namespace wt::net::packet
