// The compiled parts of Boost.Asio and Boost.Beast, once.
#define BOOST_ASIO_SEPARATE_COMPILATION
#define BOOST_BEAST_SEPARATE_COMPILATION
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
