#include <fovea/fovea.h>

#include <iostream>

int main() { std::cout << fovea_version() << '\n'; }
