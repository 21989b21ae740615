// What goes wrong on purpose: packets lost on links, cables that go down and come back, lanes that take another path.
#include <cmath>

#include "net/packet/part.h"
#include "net/packet/random.h"

namespace wt::net::packet {

// Whether what arrives over a link as its `count`-th frame of this class is lost.
bool Part::lost(std::uint32_t l, const Frame& frame, std::uint64_t count) {
  bool gone = w_.ingress[l].down;
  const bool link_local = frame.kind == Kind::kPause || frame.kind == Kind::kResume || frame.kind == Kind::kCredit;
  if (!gone && !link_local) {
    double kept = 1.0;
    if (!w_.faults.loss.empty()) kept = 1.0 - w_.faults.loss[l];
    if (!w_.faults.bit_error.empty()) kept *= std::pow(1.0 - w_.faults.bit_error[l], 8.0 * frame.size);
    const std::uint64_t nth = w_.faults.origin < 0 ? count : static_cast<std::uint64_t>(w_.faults.origin + now_);
    gone = kept < 1.0 &&
           uniform(w_.options.seed ^ 0x6c6f7373, 2 * std::uint64_t{l} + (frame.kind == Kind::kData ? 0 : 1), nth) >= kept;
  }
  if (!gone) return false;
  ++stats.losses;
  drop_trace(frame);
  // InfiniBand's credits count blocks sent and received absolutely, so those of a lost packet come back
  if (frame.kind == Kind::kData && !w_.ingress[l].down && w_.nodes[w_.info[l].to].loss == Loss::kCredits)
    give_back(static_cast<std::int32_t>(l), frame.size);
  return true;
}

// One end of a cable notices that it went down or came back: the part of its near node for the link that leaves it, that of the far
// node for what arrives.
void Part::flap(std::uint32_t l, bool up) {
  const LinkInfo& info = w_.info[l];
  if (w_.nodes[info.to].part == self_) {
    Ingress& in = w_.ingress[l];
    in.down = !up;
    if (!up && in.paused) {  // the pause is forgotten at both ends
      in.paused = false;
      Node& node = w_.nodes[info.to];
      node.watched = --node.paused > 0 || node.loss == Loss::kCredits;
    }
  }
  if (w_.nodes[info.from].part != self_) return;
  Link& link = w_.links[l];
  advance(l, link, now_);
  if (!up) {
    stop(l, kDown, true);
    stop(l, kPaused, false);
    Ring& ring = link.data;
    if (!ring.on_wire()) link.due = kForever;
    for (; ring.waiting(); --ring.tail) {  // newest first; order does not matter to what they hold
      const Frame frame = ring[ring.tail - 1].frame;
      link.joined -= frame.size;
      ++stats.losses;
      drop_trace(frame);
      if (frame.other >= 0) {
        release(frame, info.from);
      } else {
        w_.sources[link.source].queued = false;
      }
    }
    return;
  }
  link.credits = link.granted;
  stop(l, kNoCredit, false);
  stop(l, kDown, false);
}

void Part::detour(const Detour& d) {
  const auto lane = static_cast<std::uint32_t>(d.lane);
  if (w_.copy_of.empty()) {
    take_detour(lane, d);
    return;
  }
  w_.set_path(lane, d.path);  // for launches to come
  for (std::size_t pair = w_.lanes.src.size(); pair < w_.senders.size(); ++pair)
    if (w_.copy_of[pair] == lane) take_detour(static_cast<std::uint32_t>(pair), d);
}

void Part::take_detour(std::uint32_t pair, const Detour& d) {
  Sender& s = w_.senders[pair];
  if (s.pace == Pace::kDone || s.hops == 0) return;
  // both ports as they are at this moment, before their lane changes
  const auto from = static_cast<std::uint32_t>(s.link), to = static_cast<std::uint32_t>(w_.paths.links[w_.paths.start[d.path]]);
  advance_on(from, w_.links[from], now_);
  advance_on(to, w_.links[to], now_);
  w_.set_path(pair, d.path);
  s.pace = Pace::kIdle;  // the old port forgets it when its turn comes
  offer(pair);
  kick(to);
}

}  // namespace wt::net::packet
