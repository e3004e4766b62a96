#include "case/support.h"
