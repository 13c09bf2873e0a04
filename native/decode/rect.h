#pragma once

namespace podium {

struct Rect {
  int x, y, w, h;
};

}  // namespace podium
