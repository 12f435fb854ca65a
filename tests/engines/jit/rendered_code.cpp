#include "tests/engines/jit/rendered_code.h"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fovea::test {
namespace {

constexpr const char* head = "#include \"tests/engines/jit/probe_code.h\"\n";

}  // namespace

void RenderedCode::add(const jit::Rendered& rendered, const jit::RenderOptions& options) {
  const std::string number = std::to_string(count_++);
  std::string extra;
  for (std::size_t i = 0; i < options.extra.size(); ++i) {
    extra += "    out->extra[" + std::to_string(i) + "] = bits(Formula::" + options.extra[i].name +
             "(a, u, r, c, in->s, in->grad));\n";
  }
  text_ +=
      "namespace fovea::device::p" + number + " {\nusing Arguments = ArgumentsOf<" +
      std::to_string(rendered.words) + ">;\n" + rendered.text + "extern \"C\" void probe_" +
      number +
      "(const Probe* in, ProbeAnswer* out) {\n  probe<Arguments, Formula>(*in, *out, [&](const auto& a, "
      "const auto& u, const auto& r, const auto& c) {\n" +
      extra + "  });\n}\n}\n";
}

std::string RenderedCode::build() {
  const std::string said = library_.build(head + text_);
  for (std::size_t i = 0; said.empty() && i < count_; ++i) {
    functions_.push_back(library_.find<Function>("probe_" + std::to_string(i)));
  }
  return said;
}

ProbeAnswer RenderedCode::ask(std::size_t number, const Probe& probe) const {
  ProbeAnswer answer{};
  functions_[number](&probe, &answer);
  return answer;
}

std::vector<long long> pack_words(const jit::Rendered& rendered, const ir::Program& program,
                                  std::span<const ir::TensorView> tensors,
                                  std::span<const ir::ScalarValue> scalars, bool by_address) {
  using jit::WordLayout;
  std::vector<long long> words(static_cast<std::size_t>(std::max(rendered.words, 1)), 0);
  const auto word = [&](int at) -> long long& { return words[static_cast<std::size_t>(at)]; };
  for (std::size_t slot = 0; slot < tensors.size(); ++slot) {
    const int at = rendered.layout.tensors[slot];
    const ir::TensorView& tensor = tensors[slot];
    const auto extents = std::span(tensor.extent).first(static_cast<std::size_t>(tensor.rank));
    const bool empty = std::ranges::any_of(extents, [](std::int64_t e) { return e <= 0; });
    if (at < 0 || empty) continue;
    word(at) = reinterpret_cast<long long>(tensor.data);
    for (int i = 0; i < tensor.rank; ++i) {
      word(WordLayout::extent(at, i)) = tensor.extent[static_cast<std::size_t>(i)];
      word(WordLayout::stride(at, i)) = tensor.stride[static_cast<std::size_t>(i)];
    }
  }
  for (std::size_t slot = 0; slot < scalars.size(); ++slot) {
    const int at = rendered.layout.scalars[slot];
    if (at < 0) continue;
    const ir::ScalarValue& scalar = scalars[slot];
    const bool real = program.scalars()[slot].type == ir::Type::F32;
    const void* const where = real ? static_cast<const void*>(&scalar.f) : &scalar.i;
    if (by_address) word(at) = reinterpret_cast<long long>(where);
    word(at + 1) = by_address ? 0
                   : real     ? std::bit_cast<unsigned>(scalar.f)
                              : static_cast<unsigned>(scalar.i);
  }
  return words;
}

Probe probe_at(const ir::Point<float>& p, std::span<const long long> words) {
  return {words.data(),
          p.b,
          p.h,
          p.B,
          p.H,
          p.Hkv,
          p.Sq,
          p.Skv,
          p.q,
          p.k,
          p.score,
          p.grad,
          {p.h, p.h, p.q, p.q, p.k, p.k}};
}

namespace fs = std::filesystem;

std::string HostLibrary::build(const std::string& text) {
  std::string folder = (fs::temp_directory_path() / "fovea-rendered-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return "no folder " + folder;
  const std::string source = folder + "/code.cpp", object = folder + "/code.so",
                    log = folder + "/log", root = FOVEA_SOURCE_DIR;
  std::ofstream(source) << text;
  const std::string command = std::string(FOVEA_HOST_COMPILER) +
                              " -std=c++17 -O0 -shared -fPIC -w -ffp-contract=off -iquote '" +
                              root + "/src' -iquote '" + root +
                              "' -DFOVEA_HOST_PRIMITIVES='\"tests/engines/jit/host_numbers.h\"' '" +
                              source + "' -o '" + object + "' 2> '" + log + "'";
  if (std::system(command.c_str()) != 0) {
    std::ostringstream said;
    said << std::ifstream(log).rdbuf();
    return said.str().substr(0, 4000) + "\nin " + source;
  }
  library_ = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return dlerror();
  fs::remove_all(folder);
  return {};
}

HostLibrary::~HostLibrary() {
  if (library_ != nullptr) dlclose(library_);
}

void* HostLibrary::address(const std::string& name) const { return dlsym(library_, name.c_str()); }

}  // namespace fovea::test
