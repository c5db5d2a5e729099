// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "all_headers.hpp"

#include <iostream>

int main() {
  const reprise::Failure failure(reprise::Errc::closed, "read", "the runtime is gone");
  std::cout << failure.record().text() << '\n';
  return failure.code() == reprise::Errc::closed ? 0 : 1;
}
