#include "case/fixes.h"
