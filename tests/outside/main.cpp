// The C++ interface of an installed Fovea: a formula traced from a lambda is read by the library.
#include <fovea/fovea.hpp>
#include <iostream>

int main() {
  const auto mod = fovea::formula([](auto score, auto, auto, auto, auto) { return 2 * score; });
  const bool same = fovea::Program(mod) == fovea::Program("mod=\"score * 2\"");
  std::cout << (same ? fovea_version() : "the programs differ") << '\n';
}
