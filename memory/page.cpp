// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/page.hpp>

namespace reprise {

PageSource::~PageSource() = default;

}  // namespace reprise
