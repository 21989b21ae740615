// The packet engine as a network of the exec core that simulates each pattern of a step once; see replay.h.
//
// Counts of links and plans are those of the whole step: an episode from memory adds what its packets did when they were simulated,
// to the byte. `peak` is the most of any episode. The packet engine makes the queue pairs of each launch new, so congestion control
// carries nothing from one launch to the next, here as there. Over time a recalled episode carries what the simulated one did, from
// its own begin on; what of its bins lies across two of the step's is shared out between them. Faults do not repeat with a pattern:
// episodes with a plan on links that a fault hits are simulated, with the faults at their times, until all of them are over.
//
// Transfers influence each other where data of both takes a link. With tolerance 0 also where one's ACKs meet the other's data;
// else that is left out, which makes either faster by no more than the ACKs' share of the link (64 B of 4160 with the usual sizes).
// Where packets choose their way, all transfers influence each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "net/packet/network.h"
#include "net/replay/replay.h"

namespace wt::net::replay {

struct PacketReport {
  packet::PlanReport step;  // the whole step, simulated or not
  packet::Stats simulated;  // what was really done for it
  Report replay;
  double skipped_hops = 0;  // share of the step's data packet-hops that were not simulated
};

class ReplayPackets final : public Network {
 public:
  ReplayPackets(packet::PlanTable table, const packet::Options& options, const packet::Faults& faults = {},
                const Options& replay = {});
  ReplayPackets(const ReplayPackets&) = delete;
  ReplayPackets& operator=(const ReplayPackets&) = delete;

  std::optional<double> start(const Flow& flow) override;
  [[nodiscard]] double next_event() const override { return replay_.next_event(); }
  std::optional<Completion> advance() override { return replay_.advance(); }

  void on_pulse(std::function<void()> beat) { pulse_ = std::move(beat); }
  // Share of the transfers named that have been launched.
  [[nodiscard]] double done() const {
    return plan_of_.empty() ? 1.0 : static_cast<double>(replay_.flows()) / static_cast<double>(plan_of_.size());
  }
  [[nodiscard]] double ahead() const { return ahead_; }  // as PacketNetwork has it
  [[nodiscard]] PacketReport report() const;

 private:
  struct Tally {  // of one pattern
    packet::Stats stats;
    std::vector<std::int32_t> link;  // those that carried something
    std::vector<std::int64_t> data, control, peak;
    std::vector<double> paused;
    std::vector<packet::LinkLoad> loads;  // of `link`, where they are counted
  };
  [[nodiscard]] std::unique_ptr<Network> make(Time begin);
  [[nodiscard]] packet::Faults faults_from(Time begin) const;
  [[nodiscard]] bool exposed(std::int32_t plan, Time at) const;
  void find_exposed();
  void over(packet::PacketNetwork& network);
  [[nodiscard]] packet::Loads loads() const;
  [[nodiscard]] bool is_fabric_switch(std::int32_t node) const;
  void find_links(const packet::PacketNetwork& network, bool exact);

  packet::PlanTable table_;
  packet::Options options_;
  packet::Faults faults_;
  Time first_fault_ = kForever, last_fault_ = 0;         // before and after, all is as without; forever for what stays
  std::vector<std::uint8_t> exposed_;                    // [plans] whether faults may hit it; empty: none
  std::vector<std::vector<std::int32_t>> links_, back_;  // [plans]
  std::unordered_map<std::int64_t, std::int32_t> plan_of_;
  std::function<void()> pulse_;
  std::shared_ptr<packet::Crew> crew_;  // of all networks, which run one after the other
  std::int32_t partitions_ = 1;
  double ahead_ = 0;
  std::unique_ptr<Network> spare_;  // made to check the table; the first episode takes it
  std::vector<Tally> tallies_;
  Replay replay_;
};

}  // namespace wt::net::replay
