// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/check.hpp>

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <unistd.h>

namespace {

// Appends the names of the reach marks that this process hit to the file that REPRISE_MARKS_FILE
// names. Each test is a process of its own, so only all of them together tell what was never hit.
struct MarkWriter {
  ~MarkWriter() {
    const char* path = std::getenv("REPRISE_MARKS_FILE");
    if (path == nullptr) return;
    std::string names;
    for (auto* mark = reprise::detail::Mark::first(); mark != nullptr; mark = mark->next()) {
      if (mark->was_hit()) names.append(mark->name()).append("\n");
    }
    const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    // One write, so that tests that end together do not mix their lines.
    if (::write(file, names.data(), names.size()) < 0) std::abort();
    ::close(file);
  }
} mark_writer;

}  // namespace
