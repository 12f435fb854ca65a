#include "store/shelf.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "store/entry.h"
#include "store/recording.h"

namespace fovea::store {

Shelf::Shelf(Settings settings)
    : settings_(std::move(settings)), disk_(settings_.folder, settings_.limit) {
  for (const std::string& path : settings_.bundles) {
    NamedBundle named{path, nullptr, ""};
    try {
      named.bundle = std::make_shared<const Bundle>(Bundle::open(path));
      load(named.bundle);
    } catch (const InvalidArgument& refusal) {
      named.refusal = refusal.what();
      say_once("bundle " + named.refusal + ": not used");
    }
    named_.push_back(std::move(named));
  }
  // FOVEA_BUNDLE=first:second asks the first one first.
  std::ranges::reverse(bundles_);
  for (const std::string& path : settings_.stock) {
    try {
      bundles_.push_back(std::make_shared<const Bundle>(Bundle::open(path)));
    } catch (const InvalidArgument& refusal) {
      say_once("bundle " + std::string(refusal.what()) + ": not used");
    }
  }
}

void Shelf::say_once(const std::string& line) {
  if (!log_enabled()) return;
  {
    const std::unique_lock lock(mutex_);
    if (said_.size() >= 64 || !said_.insert(line).second) return;
  }
  log_line("# " + line);
}

void Shelf::load(std::shared_ptr<const Bundle> bundle) {
  const std::unique_lock lock(mutex_);
  std::erase_if(bundles_, [&](const auto& one) { return one->path() == bundle->path(); });
  bundles_.insert(bundles_.begin(), std::move(bundle));
}

// A bundle with plans of this engine, but none for what runs here. Those that came with the library
// are for every GPU, each for one.
void Shelf::say_what_it_was_made_for(const Bundle& bundle, const Key& key) {
  if (std::ranges::find(settings_.stock, bundle.path()) != settings_.stock.end()) return;
  std::string made_for;
  for (const Bundle::Section& section : bundle.sections()) {
    if (section.engine != key.engine) continue;
    if (section.environment == key.environment) return;
    made_for += (made_for.empty() ? "" : ", ") + section.environment;
  }
  if (made_for.empty()) return;
  say_once("bundle " + bundle.path() + ": its plans of " + key.engine + " are for " + made_for +
           ", here is " + key.environment + ": not used");
}

std::optional<Blob> Shelf::find_in_bundles(const Key& key) {
  std::vector<std::shared_ptr<const Bundle>> bundles;
  {
    const std::shared_lock lock(mutex_);
    if (bundles_.empty() || discarded_.contains(name_of(key))) return std::nullopt;
    bundles = bundles_;
  }
  for (const auto& bundle : bundles) {
    try {
      if (auto blob = bundle->find(key)) return blob;
      say_what_it_was_made_for(*bundle, key);
    } catch (const Damaged& damage) {
      say_once("bundle " + bundle->path() + " " + damage.what() + ": not used");
    }
  }
  return std::nullopt;
}

std::optional<Found> Shelf::look(const Key& key) {
  if (auto blob = find_in_bundles(key)) {
    ++bundle_hits_;
    return Found{std::move(*blob), Origin::Bundle};
  }
  if (auto blob = disk_.load(key)) {
    ++disk_hits_;
    return Found{std::move(*blob), Origin::Disk};
  }
  return std::nullopt;
}

Blob Shelf::get_or_build(const Key& key, const std::function<Blob()>& build, Origin* origin) {
  Found found = flights_.once(key, [&] {
    if (auto there = look(key)) return std::move(*there);
    const auto lock = disk_.lock(key, settings_.patience);
    if (auto blob = disk_.load(key)) {  // another process was building it
      ++disk_hits_;
      return Found{std::move(*blob), Origin::Disk};
    }
    Found built{build(), Origin::Built};
    if (disk_.save(key, built.blob)) ++disk_writes_;
    return built;
  });
  Recording::note(key, found.blob, found.origin);
  if (origin != nullptr) *origin = found.origin;
  return std::move(found.blob);
}

std::optional<Blob> Shelf::find(const Key& key, Origin* origin) {
  std::optional<Found> found = look(key);
  if (!found) return std::nullopt;
  Recording::note(key, found->blob, found->origin);
  if (origin != nullptr) *origin = found->origin;
  return std::move(found->blob);
}

void Shelf::discard(const Key& key) {
  disk_.remove(key);
  const std::unique_lock lock(mutex_);
  if (!bundles_.empty()) discarded_.insert(name_of(key));
}

Statistics Shelf::statistics() const { return {disk_hits_, bundle_hits_, disk_writes_}; }

}  // namespace fovea::store
