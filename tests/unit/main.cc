// The main function of Catch2 tests where the library comes without one (version 2).
#define CATCH_CONFIG_MAIN
#include "tests/unit/catch.h"
