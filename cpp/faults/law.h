// Random durations from a seed of one's own: the same numbers for a seed on every run, whatever the threads.
#pragma once

#include <cmath>
#include <cstdint>

namespace wt::faults {

// xoshiro256++ (Blackman and Vigna 2019), its state filled by splitmix64 from a seed and a stream's number.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream) {
    std::uint64_t x = seed ^ (stream * 0xd1342543de82ef95ULL + 0x2545f4914f6cdd1dULL);
    for (std::uint64_t& word : state_) {
      x += 0x9e3779b97f4a7c15ULL;
      std::uint64_t z = x;
      z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
      z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
      word = z ^ (z >> 31U);
    }
  }

  // Uniform in [0, 1).
  double uniform() {
    const std::uint64_t sum = state_[0] + state_[3];
    const std::uint64_t result = turn(sum, 23) + state_[0];
    const std::uint64_t t = state_[1] << 17U;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = turn(state_[3], 45);
    return static_cast<double>(result >> 11U) * 0x1.0p-53;
  }

  // Exponential with mean 1.
  double exponential() { return -std::log1p(-uniform()); }

  // Standard normal (Box and Muller 1958; the second number is thrown away, so that a draw has no memory).
  double normal() {
    const double radius = std::sqrt(2.0 * exponential());
    return radius * std::cos(6.283185307179586 * uniform());
  }

 private:
  static std::uint64_t turn(std::uint64_t x, unsigned by) { return (x << by) | (x >> (64U - by)); }
  std::uint64_t state_[4];
};

enum class Shape : std::uint8_t { fixed, exponential, lognormal, uniform };

// A duration by its mean. `spread`: of a lognormal the standard deviation of the logarithm, of a uniform half its width over the
// mean; unused otherwise. A mean below zero stands for "never".
struct Law {
  Shape shape = Shape::fixed;
  double mean = 0.0;
  double spread = 0.0;

  [[nodiscard]] double draw(Random& random) const {
    switch (shape) {
      case Shape::exponential:
        return mean * random.exponential();
      case Shape::lognormal:
        return mean * std::exp(spread * random.normal() - 0.5 * spread * spread);
      case Shape::uniform:
        return mean * (1.0 + spread * (2.0 * random.uniform() - 1.0));
      case Shape::fixed:
        break;
    }
    return mean;
  }
};

}  // namespace wt::faults
