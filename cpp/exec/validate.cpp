#include "exec/validate.h"

#include <cmath>
#include <string_view>

#include "base/check.h"

namespace wt::exec {
namespace {

void check_seconds(double value, std::string_view what, std::int64_t row) {
  if (!std::isfinite(value) || value < 0.0) fail(what, " of row ", row, " is ", value, "; it must be finite and not negative");
}

void check_size(std::size_t got, std::size_t want, std::string_view what) {
  if (got != want) fail("column ", what, " has ", got, " rows; ", want, " were expected");
}

// Offsets [n+1] from 0 to `total`, never falling.
void check_offsets(std::span<const std::int64_t> offsets, std::size_t total, std::string_view what) {
  if (offsets.empty() || offsets.front() != 0) fail(what, " must start with 0");
  for (std::size_t i = 1; i < offsets.size(); ++i)
    if (offsets[i] < offsets[i - 1]) fail(what, " falls at row ", i);
  if (offsets.back() != static_cast<std::int64_t>(total)) fail(what, " ends at ", offsets.back(), "; there are ", total, " rows");
}

void check_range(std::int64_t value, std::int64_t limit, std::string_view what, std::int64_t row) {
  if (value < 0 || value >= limit) fail(what, " of row ", row, " is ", value, "; it must be 0 to ", limit - 1);
}

// Rows of factors; without any, one row of ones that every instance takes.
void lay_out_scales(const Program& program, Layout& out) {
  const Scales& s = program.scales;
  const auto& scale = program.instances.scale;
  if (s.groups < 1 || s.groups > 256) fail("groups of scales are ", s.groups, "; allowed: 1 to 256");
  out.groups = s.groups;
  out.factors.assign(s.factor.begin(), s.factor.end());
  if (scale.empty()) {
    out.factors.assign(static_cast<std::size_t>(s.groups), 1.0);
    return;
  }
  check_size(scale.size(), program.instances.tmpl.size(), "scale");
  if (s.factor.size() % static_cast<std::size_t>(s.groups) != 0)
    fail("column scales has ", s.factor.size(), " rows; a multiple of the ", s.groups, " groups was expected");
  const auto rows = static_cast<std::int64_t>(s.factor.size()) / s.groups;
  for (std::size_t i = 0; i < s.factor.size(); ++i) check_seconds(s.factor[i], "scales", static_cast<std::int64_t>(i));
  for (std::size_t i = 0; i < scale.size(); ++i) check_range(scale[i], rows, "scale", static_cast<std::int64_t>(i));
}

void lay_out_templates(const Program& program, Layout& out) {
  const Templates& t = program.templates;
  const std::size_t n = t.stream.size();
  check_size(t.seconds.size(), n, "op seconds");
  check_size(t.host.size(), n, "op host");
  check_size(t.category.size(), n, "op category");
  check_size(t.comm.size(), n, "op comm");
  check_size(t.sync.size(), n, "op sync");
  check_size(t.wait0.size(), n, "op wait0");
  check_size(t.wait1.size(), n, "op wait1");
  if (!t.group.empty()) check_size(t.group.size(), n, "op group");
  if (!t.live.empty()) check_size(t.live.size(), n, "op live");
  for (std::size_t i = 0; i < t.live.size(); ++i)
    if (t.live[i] != -1) {
      check_range(t.live[i], program.options.live_calls, "op live", static_cast<std::int64_t>(i));
      if (t.comm[i] == kComputes) fail("op live of row ", i, " is ", t.live[i], "; only communication and copies can be live");
    }
  check_offsets(t.start, n, "template start");
  out.ops.resize(n);
  out.templates.resize(t.start.size() - 1);
  for (std::size_t k = 0; k + 1 < t.start.size(); ++k) {
    TemplateInfo& info = out.templates[k];
    info.first = t.start[k];
    info.size = static_cast<std::int32_t>(t.start[k + 1] - t.start[k]);
    if (info.size == 0) fail("template ", k, " has no operators");
    for (std::int32_t j = 0; j < info.size; ++j) {
      const auto i = static_cast<std::size_t>(info.first + j);
      const auto row = static_cast<std::int64_t>(i);
      check_seconds(t.seconds[i], "op seconds", row);
      check_seconds(t.host[i], "op host", row);
      check_range(t.stream[i], kMaxStreams, "op stream", row);
      check_range(t.category[i], program.options.categories, "op category", row);
      if (!t.group.empty()) check_range(t.group[i], out.groups, "op group", row);
      for (const std::int32_t wait : {t.wait0[i], t.wait1[i]})
        if (wait < -1 || wait >= j)
          fail("template ", k, ", op ", j, " waits for op ", wait, "; it may wait for an earlier op of the template (0 to ", j - 1,
               ") or for none (-1)");
      info.host_total += t.host[i];
      info.streams |= std::uint64_t{1} << t.stream[i];
      if (t.comm[i] > kCopy) fail("op comm ", static_cast<int>(t.comm[i]), " at row ", row, " is none of 0, 1, 2");
      info.communicates |= t.comm[i] == kCommunicates;
      info.computes |= t.comm[i] == kComputes;
      info.syncs = info.syncs || t.sync[i] != 0;
      out.streams = std::max(out.streams, t.stream[i] + 1);
      out.ops[i] = Op{t.seconds[i],
                      info.host_total,
                      t.host[i],
                      t.wait0[i] + 1,
                      t.wait1[i] + 1,
                      static_cast<std::int16_t>(t.category[i]),
                      static_cast<std::uint8_t>(t.stream[i]),
                      t.comm[i],
                      t.sync[i] != 0,
                      static_cast<std::uint8_t>(t.group.empty() ? 0 : t.group[i])};
    }
  }
}

void lay_out_instances(const Program& program, Layout& out) {
  const Instances& in = program.instances;
  const std::size_t n = in.tmpl.size();
  check_size(in.times.size(), n, "times");
  check_size(in.flags.size(), n, "flags");
  check_offsets(in.rank_start, n, "rank start");
  check_size(in.wait_start.size(), n + 1, "wait start");
  check_offsets(in.wait_start, in.waits.size(), "wait start");
  if (n > (std::size_t{1} << 30)) fail("a program may have 2^30 instances; this one has ", n);
  out.ranks = static_cast<std::int32_t>(in.rank_start.size() - 1);
  out.row.assign(n, -1);
  std::int32_t rows = 0;
  for (std::int32_t r = 0; r < out.ranks; ++r) {
    const std::int64_t first = in.rank_start[static_cast<std::size_t>(r)];
    std::int64_t events = 0;
    for (std::int64_t i = first; i < in.rank_start[static_cast<std::size_t>(r) + 1]; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int32_t tmpl = in.tmpl[at];
      if (tmpl != kRendezvous && (tmpl < 0 || tmpl >= static_cast<std::int32_t>(out.templates.size())))
        fail("rank ", r, ", instance ", i - first, " names template ", tmpl, "; there are ", out.templates.size());
      if (in.times[at] < 1 || (tmpl == kRendezvous && in.times[at] != 1))
        fail("rank ", r, ", instance ", i - first, " runs ", in.times[at], " times; allowed: 1 or more, and 1 for a rendezvous");
      if (tmpl == kRendezvous) out.row[at] = rows++;
      events += tmpl == kRendezvous ? 1 : std::int64_t{in.times[at]} * out.templates[static_cast<std::size_t>(tmpl)].size;
      for (std::int64_t w = in.wait_start[at]; w < in.wait_start[at + 1]; ++w) {
        const std::int32_t wait = in.waits[static_cast<std::size_t>(w)];
        if (wait < 0 || wait >= i - first)
          fail("rank ", r, ", instance ", i - first, " waits for instance ", wait,
               "; it may wait for earlier ones of its rank (0 to ", i - first - 1, ")");
      }
    }
    if (events >= (std::int64_t{1} << 31)) fail("rank ", r, " executes ", events, " operators; fewer than 2^31 are allowed");
  }
  check_size(program.rendezvous.stream.size(), static_cast<std::size_t>(rows), "rendezvous stream");
}

// Open addressing from a key to its dense number, in order of first appearance.
class KeyTable {
 public:
  explicit KeyTable(std::size_t expected) {
    std::size_t size = 16;
    while (size < 2 * expected) size *= 2;
    slot_.assign(size, -1);
  }
  std::int32_t number(std::int64_t key) {
    std::uint64_t mixed = static_cast<std::uint64_t>(key) * 0x9E3779B97F4A7C15ULL;
    mixed ^= mixed >> 32U;
    for (std::size_t at = mixed & (slot_.size() - 1);; at = (at + 1) & (slot_.size() - 1)) {
      if (slot_[at] < 0) {
        slot_[at] = static_cast<std::int32_t>(keys_.size());
        keys_.push_back(key);
        return slot_[at];
      }
      if (keys_[static_cast<std::size_t>(slot_[at])] == key) return slot_[at];
    }
  }
  [[nodiscard]] const std::vector<std::int64_t>& keys() const { return keys_; }

 private:
  std::vector<std::int32_t> slot_;
  std::vector<std::int64_t> keys_;
};

void lay_out_rendezvous(const Program& program, Layout& out) {
  const Rendezvous& rv = program.rendezvous;
  const std::size_t rows = rv.stream.size();
  const std::size_t parts = rv.key.size();
  check_size(rv.host.size(), rows, "rendezvous host");
  check_size(rv.cat_wait.size(), rows, "rendezvous cat_wait");
  check_size(rv.cat_transfer.size(), rows, "rendezvous cat_transfer");
  check_size(rv.part_start.size(), rows + 1, "rendezvous part start");
  check_size(rv.seconds.size(), parts, "part seconds");
  check_size(rv.participants.size(), parts, "part participants");
  check_offsets(rv.part_start, parts, "rendezvous part start");
  KeyTable table(parts);
  out.key_id.resize(parts);
  std::vector<std::int32_t> stated;  // participants, by key
  std::vector<std::int64_t> posts;   // how many instances name the key
  for (std::size_t row = 0; row < rows; ++row) {
    const auto at = static_cast<std::int64_t>(row);
    check_range(rv.stream[row], kMaxStreams, "rendezvous stream", at);
    check_range(rv.cat_wait[row], program.options.categories, "rendezvous cat_wait", at);
    check_range(rv.cat_transfer[row], program.options.categories, "rendezvous cat_transfer", at);
    check_seconds(rv.host[row], "rendezvous host", at);
    out.streams = std::max(out.streams, rv.stream[row] + 1);
    if (rv.part_start[row] == rv.part_start[row + 1]) fail("rendezvous row ", row, " has no parts");
    for (auto p = static_cast<std::size_t>(rv.part_start[row]); p < static_cast<std::size_t>(rv.part_start[row + 1]); ++p) {
      check_seconds(rv.seconds[p], "part seconds", static_cast<std::int64_t>(p));
      if (rv.participants[p] < 1) fail("key ", rv.key[p], " has ", rv.participants[p], " participants; a rendezvous has 1 or more");
      const std::int32_t id = table.number(rv.key[p]);
      out.key_id[p] = id;
      if (static_cast<std::size_t>(id) == stated.size()) {
        stated.push_back(rv.participants[p]);
        posts.push_back(0);
      }
      if (stated[static_cast<std::size_t>(id)] != rv.participants[p])
        fail("key ", rv.key[p], " is said to have ", stated[static_cast<std::size_t>(id)], " participants by one rank and ",
             rv.participants[p], " by another");
      ++posts[static_cast<std::size_t>(id)];
    }
  }
  for (std::size_t id = 0; id < posts.size(); ++id)
    if (posts[id] != stated[id])
      fail("key ", table.keys()[id], " has ", stated[id], " participants, but ", posts[id], " instances name it");

  out.member_start.assign(posts.size() + 1, 0);
  for (std::size_t id = 0; id < posts.size(); ++id) out.member_start[id + 1] = out.member_start[id] + posts[id];
  out.members.resize(parts);
  std::vector<std::int64_t> fill(out.member_start.begin(), out.member_start.end() - 1);
  for (std::int32_t r = 0; r < out.ranks; ++r) {
    const auto from = static_cast<std::size_t>(program.instances.rank_start[static_cast<std::size_t>(r)]);
    const auto to = static_cast<std::size_t>(program.instances.rank_start[static_cast<std::size_t>(r) + 1]);
    for (std::size_t i = from; i < to; ++i) {
      if (out.row[i] < 0) continue;
      const auto row = static_cast<std::size_t>(out.row[i]);
      for (auto p = static_cast<std::size_t>(rv.part_start[row]); p < static_cast<std::size_t>(rv.part_start[row + 1]); ++p) {
        const auto id = static_cast<std::size_t>(out.key_id[p]);
        const auto slot = static_cast<std::size_t>(fill[id]++);
        if (fill[id] - 1 > out.member_start[id] && out.members[slot - 1].rank == r)
          fail("rank ", r, " posts key ", rv.key[p], " twice; each participant is a rank of its own");
        out.members[slot] = Member{r, static_cast<std::int32_t>(i)};
      }
    }
  }
}

void lay_on_grid(const Program& program, Layout& out) {
  const double unit = program.options.grid;
  if (!(unit >= 0.0)) fail("grid is ", unit, "; it must not be negative");
  out.grid = Grid(unit);
  for (const double seconds : program.rendezvous.host) out.meeting_host.push_back(out.grid.snap(seconds));
  for (const double seconds : program.rendezvous.seconds) out.part_seconds.push_back(out.grid.snap(seconds));
  for (TemplateInfo& info : out.templates) {
    info.host_total = 0.0;
    for (std::int64_t i = info.first; i < info.first + info.size; ++i) {
      Op& op = out.ops[static_cast<std::size_t>(i)];
      op.seconds = out.grid.snap(op.seconds);
      op.host = out.grid.snap(op.host);
      op.host_until = info.host_total += op.host;
    }
  }
}

}  // namespace

Layout validate(const Program& program) {
  const Options& options = program.options;
  if (options.categories < 1 || options.categories > 4096) fail("categories is ", options.categories, "; allowed: 1 to 4096");
  if (!(options.compute_tax >= 0.0 && options.compute_tax <= 1.0))
    fail("compute_tax is ", options.compute_tax, "; allowed: 0 to 1");
  if (options.host_window < 0) fail("host_window is ", options.host_window, "; allowed: 0 (no limit) or more");
  Layout out;
  lay_out_scales(program, out);
  lay_out_templates(program, out);
  lay_out_instances(program, out);
  lay_out_rendezvous(program, out);
  lay_on_grid(program, out);
  check_size(options.record.size(), static_cast<std::size_t>(out.ranks), "record");
  if (!options.taxes.empty()) check_size(options.taxes.size(), static_cast<std::size_t>(out.ranks), "taxes");
  for (const double tax : options.taxes)
    if (!(tax >= 0.0 && tax <= 1.0)) fail("taxes has ", tax, "; allowed: 0 to 1");
  return out;
}

}  // namespace wt::exec
