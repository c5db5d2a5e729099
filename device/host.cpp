// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/host.hpp>

#include <utility>

namespace reprise {

namespace {

thread_local ThreadRole role = ThreadRole::user;

}  // namespace

ThreadRole this_thread_role() noexcept {
  return role;
}

RoleScope::RoleScope(ThreadRole entered) noexcept : before_(std::exchange(role, entered)) {}

RoleScope::~RoleScope() {
  role = before_;
}

}  // namespace reprise
