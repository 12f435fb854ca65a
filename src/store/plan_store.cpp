#include "store/plan_store.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <mutex>
#include <utility>

#include "base/env.h"
#include "base/error.h"

namespace fovea::store {

PlanStore::PlanStore(Settings settings)
    : settings_(std::move(settings)), disk_(settings_.folder, settings_.limit) {
  for (const std::string& path : settings_.bundles) {
    NamedBundle named{path, nullptr, ""};
    try {
      named.bundle = std::make_shared<const Bundle>(Bundle::open(path));
      load(named.bundle);
    } catch (const InvalidArgument& refusal) {
      named.refusal = refusal.what();
      said_.say("# bundle " + named.refusal + ": not used");
    }
    named_.push_back(std::move(named));
  }
  // FOVEA_BUNDLE=first:second asks the first one first.
  std::ranges::reverse(bundles_);
  for (const std::string& path : settings_.stock) {
    try {
      bundles_.push_back(std::make_shared<const Bundle>(Bundle::open(path)));
    } catch (const InvalidArgument& refusal) {
      said_.say("# bundle " + std::string(refusal.what()) + ": not used");
    }
  }
}

void PlanStore::load(std::shared_ptr<const Bundle> bundle) {
  const std::unique_lock lock(mutex_);
  std::erase_if(bundles_, [&](const auto& one) { return one->path() == bundle->path(); });
  bundles_.insert(bundles_.begin(), std::move(bundle));
}

// A bundle with plans of this engine, but none for what runs here. Those that came with the library
// are for every GPU, each for one.
void PlanStore::say_what_it_was_made_for(const Bundle& bundle, const Key& key) {
  if (std::ranges::find(settings_.stock, bundle.path()) != settings_.stock.end()) return;
  std::string made_for;
  for (const Bundle::Section& section : bundle.sections()) {
    if (section.engine != key.engine) continue;
    if (section.environment == key.environment) return;
    made_for += (made_for.empty() ? "" : ", ") + section.environment;
  }
  if (made_for.empty()) return;
  said_.say("# bundle " + bundle.path() + ": its plans of " + key.engine + " are for " + made_for +
            ", here is " + key.environment + ": not used");
}

std::optional<Blob> PlanStore::find_in_bundles(const Key& key) {
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
      said_.say("# bundle " + bundle->path() + " " + damage.what() + ": not used");
    }
  }
  return std::nullopt;
}

std::optional<Found> PlanStore::look(const Key& key) {
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

Blob PlanStore::get_or_build(const Key& key, const std::function<Blob()>& build, Origin* origin) {
  Found found = builds_.once(key, [&] {
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

std::optional<Blob> PlanStore::find(const Key& key) {
  std::optional<Found> found = look(key);
  return found ? std::optional(std::move(found->blob)) : std::nullopt;
}

void PlanStore::discard(const Key& key) {
  disk_.remove(key);
  const std::unique_lock lock(mutex_);
  if (!bundles_.empty()) discarded_.insert(name_of(key));
}

Statistics PlanStore::statistics() const { return {disk_hits_, bundle_hits_, disk_writes_}; }

namespace {

std::vector<std::string> split_paths(const std::string& list) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(':', at), list.size());
    if (end > at) out.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// The folder of the file that this code is in: libfovea.so, or a program that has it inside.
std::filesystem::path own_folder() {
  Dl_info info{};
  const bool found = dladdr(reinterpret_cast<const void*>(&settings_from_environment), &info) != 0;
  return found && info.dli_fname != nullptr ? std::filesystem::path(info.dli_fname).parent_path()
                                            : std::filesystem::path();
}

// Where the build puts bundles, and where they are installed.
std::vector<std::string> stock_bundles() {
  std::vector<std::string> out;
  const std::filesystem::path here = own_folder();
  for (const auto& folder : {here / "fovea-stock", here / "fovea" / "stock"}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == ".fovea") out.push_back(entry.path().string());
    }
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

std::optional<std::uint64_t> parse_bytes(const std::string& text) {
  std::uint64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc()) return std::nullopt;
  const std::string unit(end, last);
  int shift = 0;
  if (unit == "K" || unit == "KiB") shift = 10;
  if (unit == "M" || unit == "MiB") shift = 20;
  if (unit == "G" || unit == "GiB") shift = 30;
  if (shift == 0 && !unit.empty()) return std::nullopt;
  if (number > std::numeric_limits<std::uint64_t>::max() >> shift) return std::nullopt;
  return number << shift;
}

Settings settings_from_environment() {
  Settings out;
  out.folder = choose_folder();
  if (const auto text = env_value(Env::CacheLimit)) {
    const auto limit = parse_bytes(*text);
    out.limit = limit.value_or(default_limit);
    if (!limit) out.bad_limit = *text;
  }
  out.bundles = split_paths(env_value(Env::Bundle).value_or(""));
  out.stock = stock_bundles();
  return out;
}

// Never destroyed: a plan may be built while a process ends.
PlanStore& plan_store() {
  static PlanStore& process = *new PlanStore(settings_from_environment());
  return process;
}

Blob get_or_build(const Key& key, const std::function<Blob()>& build, Origin* origin) {
  return plan_store().get_or_build(key, build, origin);
}

void discard(const Key& key) { plan_store().discard(key); }

static thread_local Recording* innermost = nullptr;

Recording::Recording() : outer_(std::exchange(innermost, this)) {}

Recording::~Recording() { innermost = outer_; }

void Recording::note(const Key& key, const Blob& blob, Origin origin) {
  if (innermost != nullptr) innermost->blobs_.push_back({key, blob, origin});
}

}  // namespace fovea::store
