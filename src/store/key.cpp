#include "store/key.h"

#include <cstdio>

#include "store/entry.h"

namespace fovea::store {

std::string name_of(const Key& key) {
  Writer out;
  put(out, key);
  // Another form of the files has other names: two versions of Fovea can share a folder.
  const std::uint64_t first = checksum(out.written(), entry_format);
  const std::uint64_t second = checksum(out.written(), first);
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(second));
  return digits;
}

std::string summary_of(const Key& key) { return key.content.substr(0, key.content.find('\n')); }

void put(Writer& out, const Key& key) {
  for (const std::string* text : {&key.engine, &key.environment, &key.content}) {
    out.u32(static_cast<std::uint32_t>(text->size()));
  }
  for (const std::string* text : {&key.engine, &key.environment, &key.content}) out.text(*text);
}

std::optional<Key> read_key(ByteReader& in) {
  const std::uint32_t sizes[] = {in.u32(), in.u32(), in.u32()};  // in this order: braces promise it
  Key key;
  key.engine = in.text(sizes[0]);
  key.environment = in.text(sizes[1]);
  key.content = in.text(sizes[2]);
  if (!in.ok()) return std::nullopt;
  return key;
}

}  // namespace fovea::store
