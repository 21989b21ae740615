// Checks a program before it runs and lays it out for the inner loop.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/grid.h"
#include "exec/program.h"

namespace wt::exec {

struct Op {
  double seconds;
  double host_until;  // host seconds from the start of the repetition until this operator is enqueued
  double host;
  std::int32_t wait0, wait1;  // plus one, so that 0 is "none"
  std::int16_t category;
  std::uint8_t stream;
  std::uint8_t comm;
  bool sync;
  std::uint8_t group;  // column of the instance's factors
};

struct TemplateInfo {
  std::int64_t first = 0;
  std::int32_t size = 0;
  std::uint64_t streams = 0;  // bit s: some operator runs on stream s
  double host_total = 0.0;
  bool computes = false;
  bool communicates = false;
  bool syncs = false;  // the host waits for one of its operators
};

// A participant of a rendezvous: which instance (global row) of which rank.
struct Member {
  std::int32_t rank = 0;
  std::int32_t instance = 0;
};

struct Layout {
  std::vector<Op> ops;
  std::vector<TemplateInfo> templates;
  std::vector<std::int32_t> row;           // [I] row of Rendezvous, or -1
  std::vector<std::int32_t> key_id;        // [parts] dense number of the part's key
  std::vector<std::int64_t> member_start;  // [keys+1]
  std::vector<Member> members;             // by key, in order of rank
  std::int32_t ranks = 0;
  std::int32_t streams = 1;
  std::vector<double> factors;  // [rows x groups]; a single row of ones where nothing is stretched
  std::int32_t groups = 1;
  Grid grid;                         // durations of `ops` and of meetings lie on it; those that factors stretch are to be snapped
  std::vector<double> meeting_host;  // [rows of Rendezvous]
  std::vector<double> part_seconds;  // [parts]
};

// Throws wt::Error that names the first mistake.
[[nodiscard]] Layout validate(const Program& program);

}  // namespace wt::exec
