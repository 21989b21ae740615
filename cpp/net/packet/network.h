// The packet engine as a network of the exec core: meetings launch plans, and the plans' packets meet on the links.
//
// A plan is a list of lanes that start together; it is over when the last of them is delivered. Each start of a key launches its
// plan anew, so a plan may be in flight many times at once. A key without a plan is answered at once with the seconds that its
// participants stated. The clock is picoseconds, so an end is exact to 1e-12 s.
//
// No packet leaves at the moment of its launch: every plan has a time (`ahead`) before its first one does. When the caller's clock
// is at t, whatever it still launches changes nothing before t + ahead, so the network simulates that far, on several threads,
// without ever taking anything back. An end is told when the caller's clock has come to it. Pairs are numbered, and ends are
// sorted, by what does not depend on partitions; so neither do results. Where some plan has no such time, the network goes on
// event by event, on one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "net/network.h"
#include "net/packet/part.h"
#include "net/packet/windows.h"

namespace wt::net::packet {

// Owned, since the network outlives the call that made it. Columns of graph, paths and lanes as in their headers.
struct PlanTable {
  std::vector<std::uint8_t> node_kind, link_up;
  std::vector<std::int32_t> node_site, link_from, link_to, endpoint, nics, rail;
  std::vector<double> link_rate, link_latency;
  std::vector<std::int16_t> link_axis;
  std::vector<std::int64_t> nic_start;
  std::vector<std::int64_t> path_start;
  std::vector<std::int32_t> path_links;
  std::vector<std::int32_t> src, dst, path, window, group;
  std::vector<std::int64_t> bytes, slice;
  std::vector<double> delay, rate, begin, hold;  // begin: after the launch of the plan
  std::vector<std::int64_t> dep_start, dep_lead;
  std::vector<std::int32_t> dep_lane;    // within the plan's own lanes
  std::vector<std::int64_t> plan_start;  // [P+1] into lanes
  std::vector<std::int64_t> key;         // keys of transfers
  std::vector<std::int32_t> key_plan;    // and the plan that each launches
};

struct PlanReport {
  Stats stats;
  std::vector<std::int64_t> link_data, link_control, link_peak;  // [L]
  std::vector<double> link_paused;
  std::vector<std::int64_t> starts;    // [P]
  std::vector<double> total, longest;  // [P] s from launch to delivery: sum, most
  Loads loads;                         // if they are counted; tags are plans
  double now = 0.0;
  std::int32_t partitions = 1;
};

class PacketNetwork final : public Network {
 public:
  // `crew`: threads that several networks take in turn; without it the network has its own.
  PacketNetwork(PlanTable table, const Options& options, const Faults& faults = {}, std::shared_ptr<Crew> crew = nullptr);
  PacketNetwork(const PacketNetwork&) = delete;
  PacketNetwork& operator=(const PacketNetwork&) = delete;

  std::optional<double> start(const Flow& flow) override;
  [[nodiscard]] double next_event() const override;
  std::optional<Completion> advance() override;

  // Handles what is still about when all plans are delivered (last ACKs, timers), so that report() counts it. Nothing starts after
  // it.
  void finish();

  // Called every few milliseconds of work; may throw to stop.
  void on_pulse(std::function<void()> beat) { pulse_ = std::move(beat); }
  // All links that packets of a plan may take, some of them twice.
  [[nodiscard]] std::vector<std::int32_t> ways(std::int32_t plan) const;
  // Share of the transfers named that have been delivered.
  [[nodiscard]] double done() const {
    const std::size_t named = table_.key.size();
    return named == 0 ? 1.0 : (static_cast<double>(instances_.size()) - static_cast<double>(flying_)) / static_cast<double>(named);
  }
  // Seconds from a launch to what it changes, at least; 0: too little for threads.
  [[nodiscard]] double ahead() const { return seconds(ahead_); }
  [[nodiscard]] std::int32_t partitions() const { return static_cast<std::int32_t>(parts_.size()); }
  [[nodiscard]] PlanReport report(bool with_loads = true) const;
  // [L] what the links carry, where it is counted.
  [[nodiscard]] const std::vector<LinkLoad>& loads() const { return world_.loads; }

 private:
  struct Instance {
    std::int32_t plan = -1;
    std::int32_t flow = -1;
    std::uint32_t first = 0;  // pair
    Time begin = 0;
    std::int32_t undelivered = 0;  // lanes
    std::int32_t unfinished = 0;   // ends that are still to come: deliveries and last ACKs
  };
  struct Ended {
    Time time;
    std::int32_t instance;
  };
  [[nodiscard]] Time least_begin() const;
  void divide(std::shared_ptr<Crew> crew);
  [[nodiscard]] Time next() const;
  void run_to(Time until);
  void collect();
  std::uint32_t free_pairs(std::int32_t plan, double clock);

  PlanTable table_;
  World world_;
  std::vector<std::unique_ptr<Part>> parts_;
  Time ahead_ = 0;    // least time from a launch to what it changes; 0: event by event
  Time told_ = 0;     // the caller's clock, as far as the caller has asked
  Time handed_ = 0;   // and as far as it has said that nothing begins before
  Time reached_ = 0;  // all before has happened
  std::shared_ptr<Crew> crew_;
  std::unique_ptr<Windows> windows_;  // with several partitions
  std::unordered_map<std::int64_t, std::int32_t> plan_of_;
  std::vector<Instance> instances_;
  std::vector<std::vector<std::uint32_t>> spare_;  // by plan: first pairs of instances whose last packet is over
  std::deque<Ended> ends_;                         // of plans, that the caller has not heard of
  std::deque<Ended> over_;                         // instances whose last packet is over, maybe ahead of the caller's clock
  std::vector<Part::End> news_;
  std::vector<std::int64_t> starts_;
  std::vector<double> total_, longest_;
  std::function<void()> pulse_;
  std::int64_t beats_ = 0;
  std::int64_t flying_ = 0;  // instances that are not delivered yet
  bool reuse_ = true;
};

}  // namespace wt::net::packet
