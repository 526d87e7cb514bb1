#include "schema/ids.h"
