// Owns the columns of a program; used by tests, the fuzz driver and the bench program.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "exec/engine.h"
#include "net/closed/closed.h"

namespace wt::exec {

struct OpSpec {
  double seconds = 0.0;
  int stream = 0;
  int category = 0;
  double host = 0.0;
  bool comm = false;
  bool sync = false;
  int wait0 = -1;
  int wait1 = -1;
  int group = 0;
  int live = -1;
};

struct PartSpec {
  std::int64_t key = 0;
  double seconds = 0.0;
  int participants = 2;
};

struct InstanceSpec {
  int tmpl = 0;  // kRendezvous: the fields below `waits`
  int times = 1;
  std::uint8_t flags = 0;
  std::vector<int> waits;
  int stream = 1;
  std::vector<PartSpec> parts;
  double host = 0.0;
  int cat_wait = 0;
  int cat_transfer = 0;
  int scale = 0;  // row of Builder::factors
};

class Builder {
 public:
  std::vector<std::vector<OpSpec>> templates;
  std::vector<std::vector<InstanceSpec>> ranks;
  std::int32_t categories = 1;
  double compute_tax = 0.0;
  std::int64_t host_window = 0;
  bool critical_path = true;
  bool record = false;
  std::vector<double> factors;  // [rows x groups]; empty: nothing is stretched
  std::int32_t groups = 1;
  bool outcomes = false;
  double grid = 0.0;
  std::int64_t live_key = 0, live_calls = 0;  // above 0: by the evaluator that goes by time

  int add_template(std::vector<OpSpec> ops) {
    templates.push_back(std::move(ops));
    return static_cast<int>(templates.size()) - 1;
  }

  // Lays the columns out; the Program points into this Builder.
  Program build() {
    columns_ = Columns{};
    Columns& c = columns_;
    for (const auto& ops : templates) {
      for (const OpSpec& op : ops) {
        c.op_stream.push_back(op.stream);
        c.op_seconds.push_back(op.seconds);
        c.op_host.push_back(op.host);
        c.op_category.push_back(op.category);
        c.op_comm.push_back(op.comm ? 1 : 0);
        c.op_sync.push_back(op.sync ? 1 : 0);
        c.op_wait0.push_back(op.wait0);
        c.op_wait1.push_back(op.wait1);
        c.op_group.push_back(op.group);
        if (live_calls > 0) c.op_live.push_back(op.live);
      }
      c.template_start.push_back(static_cast<std::int64_t>(c.op_stream.size()));
    }
    for (const auto& rank : ranks) {
      for (const InstanceSpec& i : rank) {
        c.tmpl.push_back(i.tmpl);
        if (!factors.empty()) c.scale.push_back(i.scale);
        c.times.push_back(i.times);
        c.flags.push_back(i.flags);
        c.waits.insert(c.waits.end(), i.waits.begin(), i.waits.end());
        c.wait_start.push_back(static_cast<std::int64_t>(c.waits.size()));
        if (i.tmpl != kRendezvous) continue;
        c.rv_stream.push_back(i.stream);
        c.rv_host.push_back(i.host);
        c.rv_cat_wait.push_back(i.cat_wait);
        c.rv_cat_transfer.push_back(i.cat_transfer);
        for (const PartSpec& p : i.parts) {
          c.key.push_back(p.key);
          c.seconds.push_back(p.seconds);
          c.participants.push_back(p.participants);
        }
        c.part_start.push_back(static_cast<std::int64_t>(c.key.size()));
      }
      c.rank_start.push_back(static_cast<std::int64_t>(c.tmpl.size()));
    }
    c.record.assign(ranks.size(), record ? 1 : 0);
    return Program{
        Templates{c.template_start, c.op_stream, c.op_seconds, c.op_host, c.op_category, c.op_comm, c.op_sync, c.op_wait0,
                  c.op_wait1, c.op_group, c.op_live},
        Instances{c.rank_start, c.tmpl, c.times, c.flags, c.wait_start, c.waits, c.scale},
        Rendezvous{c.rv_stream, c.rv_host, c.rv_cat_wait, c.rv_cat_transfer, c.part_start, c.key, c.seconds, c.participants},
        Options{categories, compute_tax, host_window, critical_path, c.record, live_key, live_calls, {}, outcomes, grid},
        Scales{factors, groups},
    };
  }

  Timeline run() {
    net::Closed network;
    return exec::run(build(), network);
  }

 private:
  struct Columns {
    std::vector<std::int64_t> template_start{0}, rank_start{0}, wait_start{0}, part_start{0}, key;
    std::vector<std::int32_t> op_stream, op_category, op_wait0, op_wait1, op_group, op_live, scale, tmpl, times, waits, rv_stream,
        rv_cat_wait, rv_cat_transfer, participants;
    std::vector<double> op_seconds, op_host, rv_host, seconds;
    std::vector<std::uint8_t> op_comm, op_sync, flags, record;
  };
  Columns columns_;
};

inline InstanceSpec task(int tmpl, std::vector<int> waits = {}, int times = 1, std::uint8_t flags = 0) {
  InstanceSpec i;
  i.tmpl = tmpl;
  i.times = times;
  i.flags = flags;
  i.waits = std::move(waits);
  return i;
}

inline InstanceSpec meet(std::vector<PartSpec> parts, std::vector<int> waits = {}, int stream = 1) {
  InstanceSpec i;
  i.tmpl = kRendezvous;
  i.waits = std::move(waits);
  i.stream = stream;
  i.parts = std::move(parts);
  return i;
}

inline double total(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace wt::exec
