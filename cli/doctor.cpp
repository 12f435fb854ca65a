// `fovea doctor`: what the library says about this machine and about itself.
#include <iostream>

#include "handles.h"
#include "verb.h"
#include "verbs.h"

namespace fovea::cli {
namespace {

void print_doctor() {
  const std::string text = text_of(fovea_doctor);
  std::cout << text << (text.ends_with('\n') ? "" : "\n");
}

}  // namespace

void add_doctor(CLI::App& program) {
  Verb verb(program, "doctor", "Say what was found on this machine and what was not");
  verb.footer("Example:\n  fovea doctor");
  verb.callback(print_doctor);
}

}  // namespace fovea::cli
