// What a stored blob depends on, in words. Keys are compared in full when a blob is found, so a
// collision of hashes costs one rebuild. Engines make them, listings print them.
#pragma once

#include <optional>
#include <string>

#include "store/packed.h"

namespace fovea::store {

struct Key {
  std::string engine;       // "cudnn"
  std::string environment;  // "cudnn 9.19.0 ... sm_90": what bundles stand or fall by
  // All else: best the lowered form itself, so that a change of the lowering is a change of the
  // key. Listings show its first line: the problem.
  std::string content;

  bool operator==(const Key&) const = default;
};

// 32 hexadecimal digits, the same in every process and on every machine.
std::string name_of(const Key& key);

// The first line of the content.
std::string summary_of(const Key& key);

// Keys and blobs beyond these are built each time and never stored.
constexpr std::uint64_t largest_text = std::uint64_t{1} << 24;
constexpr std::uint64_t largest_blob = std::uint64_t{1} << 28;

// In files. Reading gives nothing if the bytes are no key.
void put(Writer& out, const Key& key);
std::optional<Key> read_key(ByteReader& in);

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    return std::hash<std::string>{}(key.content);  // the rest is the same for most
  }
};

}  // namespace fovea::store
