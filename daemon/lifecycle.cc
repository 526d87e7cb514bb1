#include "daemon/model.h"
