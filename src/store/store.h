// Blobs that outlive a process: serialised plans (70-250 KB each), found by what they depend on.
// From the bundles that were loaded, then from the user's cache folder; else built, and written
// there. Knows nothing of any engine: what is in a blob, and what its key must say, is the
// engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "store/key.h"

namespace fovea::store {

using Blob = std::vector<std::uint8_t>;

enum class Origin : std::uint8_t { Bundle, Disk, Built };

// The blob of this key, of the process's store. One build per key: other threads of this process
// wait for it and get the same blob or exception; other processes wait and then find it on disk.
// Where locks fail, or a builder is stuck for a minute, a process builds its own. No fault of the
// disk or of a file there is an error: then it is as if there were none. `build` must not ask for
// the same key.
Blob get_or_build(const Key& key, const std::function<Blob()>& build, Origin* origin = nullptr);

// The same without building.
std::optional<Blob> find(const Key& key, Origin* origin = nullptr);

// A blob that was found is of no use after all (its library refuses it): it is removed from the
// disk, and bundles are not asked for this key again. Ask get_or_build() once more.
void discard(const Key& key);

}  // namespace fovea::store
