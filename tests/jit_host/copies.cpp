#include "tests/jit_host/copies.h"

#include "tests/jit_host/mistake.h"

namespace fovea::on_host {

void Copies::clear() {
  queue_.clear();
  first_ = 0;
  group_ = 0;
}

void Copies::issue(SharedMemory& memory, unsigned to, const void* from, int bytes, int valid,
                   bool now, const User& user, Where where) {
  const std::string who = "copy_async of thread " + std::to_string(user.thread) + " at ";
  if (valid < 0 || valid > bytes) {
    throw Mistake(who + text(where) + " has " + std::to_string(valid) + " valid bytes of " +
                  std::to_string(bytes));
  }
  if (valid > 0 && reinterpret_cast<std::uintptr_t>(from) % static_cast<unsigned>(bytes) != 0) {
    throw Mistake(who + text(where) + " reads from a misaligned address");
  }
  Copy copy{from,   to,   static_cast<unsigned>(bytes), static_cast<unsigned>(valid), false,
            group_, where};
  memory.begin_copy(to, copy.bytes, user, where);
  if (now) memory.write_copy(to, from, copy.valid, copy.bytes);
  copy.arrived = now;
  queue_.push_back(copy);
}

void Copies::wait(SharedMemory& memory, int pending, const User& user) {
  const std::int64_t done = std::int64_t{group_} - pending;  // groups before this one
  while (first_ < queue_.size() && queue_[first_].group < done) {
    const Copy& copy = queue_[first_++];
    if (!copy.arrived) memory.write_copy(copy.to, copy.from, copy.valid, copy.bytes);
    memory.end_copy(copy.to, copy.bytes, user, copy.where);
  }
  if (first_ == queue_.size()) {
    queue_.clear();
    first_ = 0;
  }
}

}  // namespace fovea::on_host
