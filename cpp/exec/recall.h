// What became of the instances of a walk, so that one that begins as another did need not be walked through again.
//
// Times of an instance count from its anchor, the start of its first operator. How it goes on depends on its template, on when its
// streams are free, on the communication in flight, and on the host. Times lie on a grid (grid.h), so these are equal or not, to
// the bit; and a recalled instance is what walking through it would have given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace wt::exec {

// A slice of the arrays of a Recall.
struct Slice {
  std::uint32_t first = 0, count = 0;
};

// Seconds that an account grows by: its place in the rank's row of accounts.
struct Entry {
  std::int32_t place;
  double seconds;
};

// What the first operator on the compute stream waits for inside of its instance; the idle time before it depends on the past.
struct FirstOnCompute {
  std::int32_t op = -1;                                    // none: -1
  double start = 0.0;                                      // from the anchor, as are the ends
  double host = 0.0;                                       // when the host enqueues it, from the host's begin
  double end0 = -std::numeric_limits<double>::infinity();  // of the operators that it waits for
  double end1 = -std::numeric_limits<double>::infinity();
  std::int32_t category0 = -1, category1 = -1;  // theirs
};

struct Recalled {
  double begin = 0.0, end = 0.0;  // of the instance
  bool felt = false;              // the host made an operator wait
  double host = 0.0;              // the host's begin: the latest that is not felt, or the one that was
  std::int32_t category = 0;
  bool held = false;  // of a template whose operators hold up the host: whether one did, and until when
  double held_until = 0.0, host_end = 0.0;
  FirstOnCompute first;
  Slice streams;  // of `numbers`: when each stream is free, in order of streams
  Slice busy, idle, stretch;
  Slice flights;            // of `numbers`: begin and end
  Slice times;              // of `numbers`: start of each event, then end of each; empty if they are not kept
  std::int32_t other = -1;  // another outcome of the same key, for another host
};

class Recall {
 public:
  // The key of the instance at hand: start with `begin_key`, then `add` what it depends on.
  void begin_key(std::uint64_t word) {
    key_.clear();
    add(word);
  }
  void add(std::uint64_t word) { key_.push_back(word); }
  void add(double seconds);

  // The number of the outcome of the key for a host that begins at `host`, from the anchor; -1 if none is known.
  [[nodiscard]] std::int32_t find(double host);
  [[nodiscard]] const Recalled& outcome(std::int32_t number) const { return outcomes_[static_cast<std::size_t>(number)]; }
  // Keeps the outcome of the key that was looked up last, if `keeps()`; returns its number.
  std::int32_t keep(const Recalled& outcome);
  [[nodiscard]] bool keeps() const { return at_ >= 0 && known_[static_cast<std::size_t>(at_)].outcomes < kMostHosts; }

  [[nodiscard]] std::span<const double> numbers_of(Slice at) const { return {numbers.data() + at.first, at.count}; }
  [[nodiscard]] std::span<const Entry> entries_of(Slice at) const { return {entries.data() + at.first, at.count}; }

  std::vector<double> numbers;
  std::vector<Entry> entries;

 private:
  static constexpr std::size_t kMostNumbers = std::size_t{1} << 22;  // 32 MB, and the same for keys: no more is kept then
  static constexpr std::int32_t kMostHosts = 8;                      // outcomes of one key

  struct Known {
    std::uint64_t hash;
    std::uint32_t first, count;  // of words_
    std::int32_t outcome;        // the latest; -1: none yet
    std::int32_t outcomes;
  };
  void grow();

  std::vector<std::uint64_t> key_, words_;
  std::vector<Known> known_;
  std::vector<std::int32_t> slots_;  // open addressing into known_
  std::vector<Recalled> outcomes_;
  std::int32_t at_ = -1;  // of known_: the key that was looked up last
};

}  // namespace wt::exec
