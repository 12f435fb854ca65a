// The folder that blobs are kept in. Blobs become code that a GPU runs, so a folder is used only if
// it is this user's and nobody else can write to it. Opened anew for each use: it may go and come
// back while a process lives.
#pragma once

#include <string>

#include "store/file.h"

namespace fovea::store {

// Which folder the environment asks for: FOVEA_CACHE_DIR, else the user's cache folder.
struct FolderChoice {
  std::string path;      // empty: none
  std::string why_none;  // "FOVEA_CACHE_DIR is off"
};
FolderChoice choose_folder();

struct OpenFolder {
  File folder;      // none where it cannot be used
  std::string why;  // then: "belongs to another user"; empty where it is only not there yet
  explicit operator bool() const { return static_cast<bool>(folder); }
};

// As it is; `make_folder` also makes it, with its parents, for this user alone.
OpenFolder open_folder(const std::string& path);
OpenFolder make_folder(const std::string& path);

}  // namespace fovea::store
