// Fast-forward through steady states, opt-in: a collective whose lanes all advance at one steady pace is cut short.
//
// When every lane that runs has delivered the same number of slices in each of two windows that took the same time, the second
// begun half a window after the first, what is still to come is more of the same. Then k slices are taken out of the middle of all
// of them and k times the pace is added to all later ends: queues, packets under way, credits and dependencies (which name slices
// relative to each other) are as they would be k slices later.
#pragma once

#include <cstdint>
#include <vector>

#include "net/packet/part.h"

namespace wt::net::packet {

class Skipper {
 public:
  Skipper(World& world, Part& part);
  // To be called now and then; true if it has skipped.
  bool look();
  [[nodiscard]] double share() const;  // of all bytes
  [[nodiscard]] double error() const {
    return error_;
  }  // relative, of the end: how much the two windows differed, in the skipped time
  [[nodiscard]] Time skipped() const { return skipped_; }
  std::vector<std::int64_t> link_bytes;  // [L] not sent

 private:
  void choose();
  void pace_of(std::uint32_t lane) { part_.pace_of(lane, window_ / 2); }
  [[nodiscard]] bool steady(std::vector<std::uint32_t>& lanes) const;
  static constexpr std::int64_t kFirstWindow = 8;  // slices: lanes that share a port take turns, so less says little of a pace
  static constexpr int kPatience = 8;         // looks, half a window apart, without a steady state before windows grow to twice
  static constexpr double kTolerance = 0.02;  // between two windows' times

  std::int64_t window_ = kFirstWindow;
  int failed_ = 0;
  Time judged_ = -1;  // the last mark that was
  World& w_;
  Part& part_;
  double skipped_bytes_ = 0;
  double error_ = 0;
  Time skipped_ = 0;
};

}  // namespace wt::net::packet
