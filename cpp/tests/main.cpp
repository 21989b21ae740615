#include "tests/check.h"

int main() { return check::run_all(); }
