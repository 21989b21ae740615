#include "serve/blocks.h"

#include <algorithm>

#include "base/check.h"

namespace wt::serve {

void PagedCache::Group::join(Number count) {
  users[count] += 1;
  used = std::max(used, count);
}

void PagedCache::Group::leave(Number count) {
  const auto user = users.find(count);
  if (user == users.end()) fail("a group of blocks lost a user");
  if (--user->second) return;
  users.erase(user);
  used = users.empty() ? 0 : users.rbegin()->first;
}

std::vector<BlockPart> PagedCache::parts(const BlockNames& names, Number first, Number end) {
  std::vector<BlockPart> found;
  const Number whole = end;
  end = std::min(end, names.named);
  while (first < end) {
    const Number place = first / names.per, inside = first % names.per;
    const Number stop = std::min(names.per, inside + end - first);
    found.push_back({names.groups[place], inside, stop});
    first += stop - inside;
  }
  if (names.own && whole > first) found.push_back({names.own, first - names.named, whole - names.named});
  return found;
}

bool PagedCache::grow(Number request, Number tokens) {
  const Number need = blocks_for(tokens) - held[request];
  if (need <= 0) return true;
  if (need > available()) return false;
  take(need);
  held[request] += need;
  return true;
}

bool PagedCache::take_all(Number need) {
  if (need > available()) return false;
  take(need);
  return true;
}

void PagedCache::give_back(Number request, Number tokens) {
  const Number spare = std::max<Number>(held[request] - blocks_for(tokens), 0);
  held[request] -= spare;
  free_ += spare;
}

void PagedCache::release(Number request, Number tokens) {
  const Shared mine = std::exchange(shared_[request], Shared{});
  const Number alone = mine.count - std::exchange(copies_[request], 0);
  const Number others = std::max<Number>(0, tokens / block_ - alone);
  free_ += held[request] - alone - others;
  held[request] = 0;
  if (others) keep(kNameless, 0, others);
  const std::vector<BlockPart> named = parts(mine.names, 0, mine.count);
  for (auto part = named.rbegin(); part != named.rend(); ++part) {  // the end of a prompt goes first
    Group& group = groups_.at(part->group);
    const Number before = group.used;
    group.leave(part->end);
    if (group.used < before) group.ages.push_back(keep(part->group, group.used, before));
  }
}

Number PagedCache::match(const BlockNames& names) const {
  for (Number place = 0; place < ceil_div(names.named, names.per); ++place) {
    const Number wanted = std::min(names.per, names.named - place * names.per);
    const auto group = groups_.find(names.groups[place]);
    const Number there = group == groups_.end() ? 0 : group->second.there;
    if (there < wanted) return place * names.per + there;
  }
  const auto own = names.own ? groups_.find(names.own) : groups_.end();
  return names.named + (own == groups_.end() ? 0 : own->second.there);
}

bool PagedCache::has_room(Number tokens, const BlockNames& names, Number found) const {
  Number idle = 0;
  for (const BlockPart& part : parts(names, 0, found)) idle += std::max<Number>(0, part.end - groups_.at(part.group).used);
  return blocks_for(tokens) - found + idle <= available();
}

void PagedCache::attach(Number request, const BlockNames& names, Number count) {
  for (const BlockPart& part : parts(names, 0, count)) {
    Group& group = groups_.at(part.group);
    const Number before = group.used;
    group.join(part.end);
    if (part.end > before) {
      use(group, part.end);
      unused_ -= part.end - before;
    }
  }
  held[request] = count;
  shared_[request] = {names, count};
}

void PagedCache::name(Number request, const BlockNames& names, Number tokens) {
  Number mine = shared_[request].count;
  const Number most = names.own ? tokens / block_ : std::min(tokens / block_, names.named);
  for (const BlockPart& part : parts(names, mine, most)) {
    Group& group = groups_[part.group];
    if (group.there > part.first && !take_names(group, part.first, part.end)) {
      const Number there = std::min(group.there, part.end);
      copies_[request] += there - part.first;
      if (part.end > group.used) {
        unused_ -= there - group.used;
        use(group, part.end);
      }
    }
    if (part.first) group.leave(part.first);
    group.join(part.end);
    group.there = std::max(group.there, part.end);
    mine += part.end - part.first;
  }
  shared_[request] = {names, mine};
}

void PagedCache::check() const {
  Number named = 0, holds = 0, used = 0, waits = 0, without = 0, there = 0;
  for (Number request = 0; request < held.size(); ++request) {
    named += shared_[request].count - copies_[request];
    holds += held[request];
  }
  for (const auto& [name, group] : groups_) {
    used += group.used;
    there += group.there - group.used;
  }
  for (const auto& [age, stretch] : stretches_) {
    waits += stretch.end - stretch.first;
    if (stretch.group == kNameless) without += stretch.end - stretch.first;
  }
  if (free_ + unused_ + used + holds - named != total_ || free_ < 0 || free_ > total_) fail("blocks were lost or made");
  if (unused_ != waits || unused_ != there + without) fail("unused blocks were lost or made");
}

Number PagedCache::keep(Number group, Number first, Number end) {
  stretches_.emplace_hint(stretches_.end(), ++age_, Stretch{group, first, end});
  unused_ += end - first;
  return age_;
}

bool PagedCache::take_names(Group& group, Number first, Number end) {
  if (group.used > first || group.there > end) return false;
  for (const Number age : group.ages) {
    if (stretches_.at(age).first < first) return false;
  }
  for (const Number age : group.ages) stretches_.at(age).group = kNameless;
  group.ages.clear();
  group.there = first;
  return true;
}

void PagedCache::use(Group& group, Number end) {
  std::vector<Number> kept;
  for (const Number age : group.ages) {
    const auto stretch = stretches_.find(age);
    if (stretch->second.end <= end) {
      stretches_.erase(stretch);
    } else {
      stretch->second.first = std::max(stretch->second.first, end);
      kept.push_back(age);
    }
  }
  group.ages = std::move(kept);
}

void PagedCache::take(Number count) {
  while (free_ < count) {
    const auto oldest = stretches_.begin();
    if (oldest == stretches_.end()) fail("a cache promised blocks that it lacks");
    const Number age = oldest->first;
    Stretch& stretch = oldest->second;
    const Number taken = std::min(count - free_, stretch.end - stretch.first);
    free_ += taken;
    unused_ -= taken;
    stretch.end -= taken;
    const bool gone = stretch.end == stretch.first;
    const Number name = stretch.group;
    if (gone) stretches_.erase(oldest);
    if (name == kNameless) continue;
    const auto group = groups_.find(name);
    group->second.there -= taken;
    if (gone) {
      std::erase(group->second.ages, age);
      if (!group->second.there) groups_.erase(group);
    }
  }
  free_ -= count;
}

}  // namespace wt::serve
