#include "case/fault.h"
