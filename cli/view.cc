#include "cli/view.h"

#include <unistd.h>

#include "schema/clock.h"

namespace dtrain::cli {

View view_of_stdout(bool long_form) {
  return {screen_of(STDOUT_FILENO), static_cast<uint64_t>(unix_ms()), long_form};
}

}  // namespace dtrain::cli
