#include "workspace.h"

#include <array>
#include <cstdlib>
#include <mutex>
#include <new>

namespace fovea_jax {
namespace {

struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// As many blocks as calls that overlap in practice; one that finds no place is freed.
struct Kept {
  std::mutex mutex;
  std::array<Block, 8> blocks;
};

Kept& kept() {
  static auto* blocks = new Kept;  // never destroyed: calls may still run while the process ends
  return *blocks;
}

// The smallest kept block that is large enough, or none.
Block take(std::size_t bytes) {
  Kept& store = kept();
  const std::lock_guard lock(store.mutex);
  Block* best = nullptr;
  for (Block& block : store.blocks) {
    if (block.bytes >= bytes && (!best || block.bytes < best->bytes)) best = &block;
  }
  if (!best) return {};
  const Block taken = *best;
  *best = {};
  return taken;
}

// Keeps the block in an empty place or in that of a smaller one; returns what is to be freed.
Block keep(Block block) {
  Kept& store = kept();
  const std::lock_guard lock(store.mutex);
  Block* smallest = &store.blocks[0];
  for (Block& other : store.blocks) {
    if (other.bytes < smallest->bytes) smallest = &other;
  }
  if (smallest->bytes >= block.bytes) return block;
  std::swap(*smallest, block);
  return block;
}

}  // namespace

HostWorkspace::HostWorkspace(std::size_t bytes) {
  if (bytes == 0) return;
  const Block block = take(bytes);
  data_ = block.data;
  bytes_ = block.bytes;
  if (data_) return;
  bytes_ = (bytes + 4095) / 4096 * 4096;
  data_ = std::aligned_alloc(4096, bytes_);
  if (!data_) throw std::bad_alloc();
}

HostWorkspace::~HostWorkspace() {
  if (data_) std::free(keep({data_, bytes_}).data);
}

}  // namespace fovea_jax
