#include "engines/jit/images.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <set>

#include "attention/problem_text.h"
#include "base/error.h"
#include "base/log.h"
#include "cuda/driver.h"
#include "cuda/kernels.h"
#include "engines/jit/compiler.h"
#include "engines/jit/source.h"
#include "store/entry.h"
#include "store/store.h"

namespace fovea::jit {
namespace {

// Counts up when what is stored changes its form.
constexpr const char* format = "1";

// The compiler's version is no part of it: kernels of any version are used, also if there is no
// compiler here. What the driver does not load is compiled again.
std::string environment(const std::string& target) { return target + " format " + format; }

// Kernels that are stored together.
struct KernelSet {
  store::Key key;
  std::vector<const KernelSource*> sources;
  std::vector<std::size_t> places;  // in PreparedPlan::units
};

void begin_key(KernelSet& set, const std::string& summary, const std::string& target) {
  set.key = {"jit", environment(target), summary + "\nheaders " + headers_hash()};
  for (const std::string& option : compile_options()) set.key.content += " " + option;
  set.key.content += "\n";
}

// What the units depend on, for `fovea cache`. Names, extents and what only a launch depends on are
// left out: they change no kernel.
std::string line_of(const Problem& baked) {
  ir::Declarations declared = baked.program.declarations();
  int number = 0;
  for (ir::TensorDecl& tensor : declared.tensors) {
    tensor.name = "t" + std::to_string(number++);
    tensor.data.clear();
    for (ir::Extent& extent : tensor.extents) extent = {ir::Extent::Kind::Number, 1};
  }
  number = 0;
  for (ir::ScalarDecl& scalar : declared.scalars) {
    scalar.name = "s" + std::to_string(number++);
    scalar.value.reset();
  }
  Problem listed;
  listed.direction = baked.direction;
  listed.sizes.d = baked.sizes.d;
  listed.sizes.dv = baked.sizes.dv;
  for (const NamedTensor& tensor : named_tensors()) {
    (listed.*tensor.spec).dtype = (baked.*tensor.spec).dtype;
  }
  const ir::Program& program = baked.program;
  listed.program =
      ir::Program::with_slots(std::move(declared), program.mod(), program.mask(), program.bprop());
  listed.dropout = baked.dropout;
  listed.deterministic = baked.deterministic;
  listed.precision = baked.precision;
  if (baked.direction == Direction::Backward) {
    listed.want_q = baked.want_q;
    listed.want_k = baked.want_k;
    listed.want_v = baked.want_v;
    listed.want_tensors = baked.want_tensors;
    listed.want_scalars = baked.want_scalars;
  }
  return print(listed);
}

// The formula's kernels together, then each of the others.
std::vector<KernelSet> sets_of(const PreparedPlan& prepared, const std::string& target) {
  std::vector<KernelSet> sets(1);
  begin_key(sets.front(), line_of(prepared.baked), target);
  for (std::size_t i = 0; i < prepared.units.size(); ++i) {
    const PreparedUnit& unit = prepared.units[i];
    if (unit.shared) {
      sets.emplace_back();
      begin_key(sets.back(), "kernel " + unit.source.name + " of all formulas", target);
    }
    KernelSet& set = unit.shared ? sets.back() : sets.front();
    set.key.content += unit.source.own;
    set.sources.push_back(&unit.source);
    set.places.push_back(i);
  }
  std::erase_if(sets, [](const KernelSet& set) { return set.sources.empty(); });
  return sets;
}

store::Blob packed(const std::vector<CompiledKernel>& images) {
  store::ByteWriter out;
  out.u32(static_cast<std::uint32_t>(images.size()));
  for (const CompiledKernel& image : images) out.u64(image.bytes.size());
  for (const CompiledKernel& image : images) out.bytes(image.bytes);
  return out.take();
}

// Throws DeviceError if the bytes are something else.
std::vector<KernelImage> unpacked(const store::Blob& blob, std::size_t count) {
  store::ByteReader in(blob);
  std::vector<std::uint64_t> sizes;
  bool right = in.u32() == count;
  for (std::size_t i = 0; right && i < count; ++i) sizes.push_back(in.u64());
  std::vector<KernelImage> images;
  for (const std::uint64_t bytes : sizes) {
    const store::Bytes one = in.bytes(bytes);
    images.emplace_back(one.begin(), one.end());
  }
  if (!right || !in.at_end()) throw DeviceError("engine jit: stored kernels are damaged");
  return images;
}

// All at once: a compilation takes one thread.
store::Blob compile_set(const KernelSet& set, const std::string& target) {
  const Compiler& by = compiler();
  if (const std::string problem = by.problem(); !problem.empty()) {
    throw Unsupported("engine jit compiles this formula's kernels with NVRTC: " + problem +
                      ". Kernels that are stored, in a bundle (fovea compile) or on disk, run "
                      "without it");
  }
  const auto start = std::chrono::steady_clock::now();
  const auto compile_and_keep = [&](const KernelSource& source) {
    const TranslationUnit unit = source.unit();
    CompiledKernel image = by.compile(unit, target);
    keep(unit, target, image);
    return image;
  };
  std::vector<std::future<CompiledKernel>> others;
  for (std::size_t i = 1; i < set.sources.size(); ++i) {
    others.push_back(std::async(std::launch::async, compile_and_keep, std::cref(*set.sources[i])));
  }
  std::vector<CompiledKernel> images;
  images.push_back(compile_and_keep(*set.sources.front()));
  for (std::future<CompiledKernel>& other : others) images.push_back(other.get());
  if (log_enabled()) {
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    log_line("jit: compiled " + std::to_string(images.size()) + " kernels in " +
             std::to_string(static_cast<int>(took.count())) + " ms for " + target + ": " +
             store::summary_of(set.key));
  }
  return packed(images);
}

std::vector<cuda::Handle> modules_of(const KernelSet& set, const store::Blob& blob) {
  std::vector<cuda::Handle> modules;
  for (const KernelImage& image : unpacked(blob, set.sources.size())) {
    modules.push_back(cuda::module_of(image));
  }
  return modules;
}

// Of one set, from wherever it is.
struct FetchedSet {
  store::Blob blob;
  store::Origin origin = store::Origin::Built;
};
FetchedSet fetch(const KernelSet& set, const std::string& target) {
  FetchedSet out;
  out.blob = store::get_or_build(set.key, [&] { return compile_set(set, target); }, &out.origin);
  return out;
}

// All sets at once. What other threads got is noted on this one, in order, since store::Recording
// belongs to a thread.
std::vector<FetchedSet> fetch_all(const std::vector<KernelSet>& sets, const std::string& target) {
  std::vector<std::future<FetchedSet>> others;
  for (std::size_t i = 1; i < sets.size(); ++i) {
    others.push_back(std::async(std::launch::async, fetch, std::cref(sets[i]), std::cref(target)));
  }
  std::vector<FetchedSet> out;
  out.push_back(fetch(sets.front(), target));
  for (std::size_t i = 1; i < sets.size(); ++i) {
    out.push_back(others[i - 1].get());
    store::Recording::note(sets[i].key, out.back().blob, out.back().origin);
  }
  return out;
}

// What the driver does not take is compiled again, unless it was compiled just now.
std::vector<cuda::Handle> load_set(const KernelSet& set, const FetchedSet& stored,
                                   const std::string& target) {
  try {
    return modules_of(set, stored.blob);
  } catch (const DeviceError& error) {
    if (stored.origin == store::Origin::Built) throw;
    if (log_enabled()) {
      log_line(std::string("jit: stored kernels cannot be used, they are compiled again: ") +
               error.what());
    }
  }
  store::discard(set.key);
  return modules_of(set, fetch(set, target).blob);
}

}  // namespace

void compile_images(const PreparedPlan& prepared, const Device& device) {
  const std::string target = compiler().target(device);
  fetch_all(sets_of(prepared, target), target);
}

std::vector<cuda::Handle> load_kernels(const PreparedPlan& prepared, const Device& device) {
  const std::string target = compiler().target(device);
  const std::vector<KernelSet> sets = sets_of(prepared, target);
  const std::vector<FetchedSet> stored = fetch_all(sets, target);
  std::vector<cuda::Handle> kernels(prepared.units.size());
  for (std::size_t s = 0; s < sets.size(); ++s) {
    const std::vector<cuda::Handle> modules = load_set(sets[s], stored[s], target);
    for (std::size_t i = 0; i < modules.size(); ++i) {
      const std::size_t at = sets[s].places[i];
      kernels[at] =
          cuda::kernel_of(modules[i], sets[s].sources[i]->name, prepared.units[at].shared_bytes);
    }
  }
  return kernels;
}

std::string refuse_environment(const std::string& text) {
  std::set<std::string> here;
  for (int i = 0; i < cuda::device_count(); ++i) {
    const Device device = cuda::find_device("cuda:" + std::to_string(i));
    here.insert(environment(compiler().target(device)));
  }
  // Without a GPU stored kernels can still be listed.
  if (here.contains(text) || (here.empty() && text.ends_with(std::string(" format ") + format))) {
    return "";
  }
  std::string mine;
  for (const std::string& one : here) mine += (mine.empty() ? "" : "; ") + one;
  return "its kernels are for " + text + ", here is " + (mine.empty() ? format : mine);
}

}  // namespace fovea::jit
